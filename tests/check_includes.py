#!/usr/bin/env python3
"""Who may include whom: arrows point left only, names are unique, files stay readable.

  include <- kernels/base <- quant <- codegen <- kernels/cpu <- strassen <- kernels/*.c
                             quant <- kernels/gpu (never sees codegen)   <- kernels/*.c
  tests, benchmarks, examples see anything; nothing sees them.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
order = {"include": 0, "kernels/base": 1, "quant": 2, "codegen": 3, "kernels/cpu": 4, "strassen": 5, "kernels/gpu": 4, "kernels": 6}
free = {"tests", "benchmarks", "examples"}
LONG = 600


def room(path):
    rel = path.relative_to(root).as_posix()
    if rel.split("/")[0] in free:
        return rel.split("/")[0]
    for name in ("kernels/base", "kernels/cpu", "kernels/gpu"):
        if rel.startswith(name + "/"):
            return name
    return rel.split("/")[0]


files = [p for d in ("include", "kernels", "quant", "codegen", "strassen", "tests", "benchmarks", "examples")
         for p in (root / d).rglob("*") if p.suffix in (".c", ".h", ".cc", ".cu", ".cuh", ".def")]
bad = []
by_name = {}
for p in files:
    if p.name in by_name and "include" not in (room(p), room(by_name[p.name])):
        bad.append(f"{p}: the name is taken by {by_name[p.name]}")
    by_name.setdefault(p.name, p)
for p in files:
    here = room(p)
    text = p.read_text()
    if len(text.splitlines()) > LONG:
        bad.append(f"{p}: {len(text.splitlines())} lines; past {LONG} a file is asked why")
    if here in order and re.search(r"\bgetenv\b", text) and p.name not in ("cpuid.c", "name.c"):
        bad.append(f"{p}: the environment is read elsewhere")
    for inc in re.findall(r'#include "([^"]+)"', text):
        if here == "benchmarks" and inc.startswith("fbgemm/"):
            continue
        target = by_name.get(pathlib.Path(inc).name)
        if target is None:
            bad.append(f"{p}: includes {inc}, which is not in the tree")
            continue
        there = room(target)
        if here in free:
            continue
        if there in free:
            bad.append(f"{p}: {here} may not include {there} ({inc})")
        elif order[there] > order[here] or (here == "kernels/gpu" and there in ("codegen", "kernels/cpu")) or (here == "strassen" and there == "kernels/gpu"):
            bad.append(f"{p}: {here} may not include {there} ({inc})")
for line in bad:
    print(line)
print(f"{len(files)} files, {len(bad)} breaches")
sys.exit(bool(bad))
