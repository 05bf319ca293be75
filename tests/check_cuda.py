#!/usr/bin/env python3
"""Compiles the CUDA sources for their targets and holds ptxas to its budget: registers, no stack, no spills, no serialized wgmma.

  check_cuda.py SOURCE_ROOT [NVCC]

A kernel over its budget is not wrong, only slower than it was: raise the number where that was meant."""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1]).resolve()
nvcc = sys.argv[2] if len(sys.argv) > 2 else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
HOPPER = 168  # what 384 threads may have at entry; setmaxnreg moves them to where they are needed
# source, architectures, registers of each kernel
BUDGET = [
    ("portable", ("80", "90", "100", "120"), {"octet_portable_s32": 128, "octet_portable_f32": 128}),
    ("prepare", ("80", "90", "100", "120"), {"octet_find_range": 96, "octet_gather": 128, "octet_gather_columns": 128, "octet_pack_rows": 64}),
    ("hopper_s8", ("90a",), None),
    ("hopper_16", ("90a",), None),
]
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-Xptxas", "-v", "-cubin"]


def compile_one(job):
    source, sm, budget = job
    where = ["-I", str(root / "include"), "-I", str(root / "kernels/base"), "-I", str(root / "quant")]
    with tempfile.TemporaryDirectory() as t:
        done = subprocess.run([nvcc, *FLAGS, f"-gencode=arch=compute_{sm},code=sm_{sm}", *where, "-o", t + "/out.cubin", str(root / f"kernels/gpu/{source}.cu")],
                              capture_output=True, text=True)
    text, bad = done.stdout + done.stderr, []
    if done.returncode:
        return [f"{source} for sm_{sm}: nvcc failed\n{text[-2000:]}"], 0
    bad += [f"{source} for sm_{sm}: {line.strip()}" for line in text.splitlines() if re.search(r"\(C75\d\d\)", line)]
    kernels = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers", text, re.S)
    for name, stack, spills, registers in kernels:
        allowed = budget[name] if budget else HOPPER
        if int(stack) or int(spills) or int(registers) > allowed:
            bad.append(f"{name} for sm_{sm}: {registers} registers of {allowed}, {stack} bytes of stack, {spills} spilled")
    if not kernels or (budget and len(kernels) != len(budget)):
        bad.append(f"{source} for sm_{sm}: {len(kernels)} kernels found")
    return bad, len(kernels)


known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True).stdout.split()
jobs = [(source, sm, budget) for source, sms, budget in BUDGET for sm in sms if "sm_" + sm.rstrip("a") in known]
if len(jobs) < sum(len(sms) for _, sms, _ in BUDGET):
    print("skipped: architectures that this nvcc does not know")
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    results = list(pool.map(compile_one, jobs))
for bad, _ in results:
    for line in bad:
        print(line)
failed = sum(len(bad) for bad, _ in results)
print(f"{sum(n for _, n in results) - failed} passed, {failed} failed")
sys.exit(bool(failed))
