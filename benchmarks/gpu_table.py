#!/usr/bin/env python3
"""The rows of `octet-bench gemm --device=gpu --peers=cublaslt --format=csv` as a table, with geometric means.

  gpu_table.py FILE.csv"""
import csv
import math
import sys

ROWS = {}
for r in csv.DictReader(open(sys.argv[1])):
    key = r["problem"], r["kernel"] if r["impl"] == "octet" else None
    if r["impl"] == "octet":
        last = ROWS.setdefault(key, {"octet": r})
    else:
        last[r["impl"]] = r
PEERS = ("cublaslt", "cublaslt0", "+dequant")
print("| M x N x K | kernel | octet, us | TFLOPS | right | over cuBLASLt's best of 8 | its first | with a dequantize pass |")
print("| --- | --- | --- | --- | --- | --- | --- | --- |")
for (problem, kernel), row in ROWS.items():
    r = row["octet"]
    ratios = [f"{float(row[p]['ratio']):.3f}" if p in row else "" for p in PEERS]
    name = kernel.split(": ")[-1].replace(" (m_hint is 0)", "")
    print(f"| {problem} | {name} | {float(r['time_median_ns']) / 1e3:.1f} | {float(r['gops']) / 1e3:.0f} | {r['verified']} | {' | '.join(ratios)} |")
for p in PEERS:
    ratios = [float(row[p]["ratio"]) for row in ROWS.values() if p in row]
    if ratios:
        print(f"\n{p}: geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}, least {min(ratios):.3f}, {len(ratios)} products")
