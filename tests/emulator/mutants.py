#!/usr/bin/env python3
"""Plants bugs in the GPU kernels, one at a time, and demands that the emulator's probe fails on each.

  mutants.py SOURCE_ROOT BUILD_DIR
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
kernels = root / "kernels" / "gpu"
RELEASE = "        if (k) release<STAGES, CLUSTER>(r.empty, before, lane);\n        before = at.stage;\n"

# what, file, from, to
MUTANTS = [
    (None, "hopper.cuh", "#pragma once", "#pragma once"),  # the source as it is must pass
    ("a stage is given back while it is read", "hopper.cuh", RELEASE, "        before = at.stage;\n        if (k + 1 < steps) release<STAGES, CLUSTER>(r.empty, before, lane);\n"),
    ("nobody waits for the bytes", "hopper.cuh", "        barrier_wait(r.full + 8 * at.stage, at.phase);\n", ""),
    ("the producer waits for the wrong phase", "hopper.cuh", "at.stage, at.phase ^ 1);", "at.stage, at.phase);"),
    ("the producer does not wait", "hopper.cuh", "            barrier_wait(r.empty + 8 * at.stage, at.phase ^ 1);\n", ""),
    ("B's bytes are not expected", "hopper.cuh", "barrier_expect(full, r.a_bytes() + r.b_bytes());", "barrier_expect(full, r.a_bytes());"),
    ("a descriptor's stride is halved", "gpu_params.h", "(1024 >> 4) << 32", "(512 >> 4) << 32"),
    ("phases never change", "hopper.cuh", "stage = 0, phase ^= 1;", "stage = 0;"),
    ("empty counts one block of a cluster", "hopper.cuh", "(TURNS ? 4 : 8) * CLUSTER);", "(TURNS ? 4 : 8));"),
    ("the first products are added to what was there", "hopper.cuh", "k > 0 || part > 0);", "1);"),
    ("the last products are not waited for", "hopper.cuh", "    wgmma_wait<0>();\n", ""),
    ("one more group may be in flight", "hopper.cuh", "        wgmma_wait<1>();\n", "        wgmma_wait<2>();\n"),
    ("a block leaves its cluster early", "hopper.cuh", "    if (CLUSTER > 1) cluster_sync(); // a block may not", "    // a block may not"),
    ("bands overlap", "gpu_params.h", "at.m = first + (int)", "at.m = first + (b > 0) + (int)"),
    ("one warp releases for its warpgroup", "hopper.cuh", "    if (lane >= CLUSTER) return;\n",
     "    if (lane >= CLUSTER || threadIdx.x / 32 % 4) return;\n    for (int i = 0; i < 3; i++) { if (CLUSTER > 1) barrier_arrive_at(empty + 8 * stage, (uint32_t)lane); else barrier_arrive(empty + 8 * stage); }\n"),
    ("turns are not waited for", "hopper.cuh", "            if (TURNS) barrier_wait(r.went", "            if (false) barrier_wait(r.went"),
    ("a skipped tile forgets its phases", "hopper.cuh", "        phase ^= (uint32_t)(to / STAGES) & 1;\n", ""),
    ("both blocks fetch the same half", "hopper.cuh", "n0 + (int32_t)rank * part,", "n0,"),
    ("only the first block is told", "hopper.cuh", "barrier_arrive_at(empty + 8 * stage, (uint32_t)lane);", "barrier_arrive_at(empty + 8 * stage, 0);"),
    ("k = 0 stores what was never set", "hopper.cuh", "        if (empty)\n#pragma unroll\n            for (int c = 0; c < 8; c++) v[c] = 0;\n", ""),
    ("half of the rows are taken twice", "hopper.cuh", "+ 4 * (c / 2) + 2 * (at % 2) + c % 2]", "+ 4 * (c / 2) + c % 2]"),
    ("columns of another thread", "epilogue.cuh", ": 32 * group + 8 * q;", ": 32 * group + 8 * (q ^ 1);"),
    ("neighbours swap the wrong pieces", "epilogue.cuh", "odd ? v[i] : v[4 + i]", "odd ? v[4 + i] : v[i]"),
    ("zero points lose their rows' sums", "epilogue.cuh", "raw[c] -= row_sum * (uint32_t)w[c];", "raw[c] -= 0u * (uint32_t)w[c];"),
    ("registers are touched without a fence", "hopper.cuh", "        wgmma_fence();\n", ""),
    ("barriers are used before their initialization is seen", "hopper.cuh", "        barrier_init_done();\n", ""),
    ("more registers than there are", "hopper.cuh", "registers_more<232>", "registers_more<248>"),
    ("the ring begins anywhere", "hopper.cuh", "(shared_address(memory) + 1023) & ~(uint32_t)1023;", "shared_address(memory);"),
    ("the ring is larger than was asked for", "hopper.cuh", "        r.went = r.empty + 8 * STAGES;\n", "        r.went = r.empty + 8 * STAGES + 1024;\n"),
    ("rows of A lose their sums", "prepare.cu", "                sum += summand(g, v[e]);\n", ""),
    ("A's tail is read past its end", "prepare.cu", "k + c < g.k ? one_value(g, i, k + c) : 0;", "one_value(g, i, k + c);"),
    ("the tile is overwritten while it is read", "portable.cu", "            __syncthreads();\n            if (p.group", "            if (p.group"),
    ("k's tail is read past its end", "portable.cu", "row < e.m && k < p.k ? a_value", "row < e.m + 1 ? a_value"),
]
FLAGS = ["-std=gnu++17", "-O1", "-shared", "-fPIC", "-DOCTET_EMULATED", "-ffp-contract=off", "-w", "-Wno-psabi", "-ftrivial-auto-var-init=pattern", "-U_FORTIFY_SOURCE", "-D_GNU_SOURCE"]
SOURCES = ["portable", "prepare", "hopper_s8", "hopper_16"]


def library(place, changed):
    """The stand-in for libcuda with the kernels of `place`; what did not change comes from the build."""
    where = [f"-I{place}", f"-I{root}/include", f"-I{root}/kernels/base", f"-I{root}/quant", f"-I{root}/tests/emulator"]
    parts = build / "tests" / "emulator"
    again = [s for s in SOURCES if s == "hopper_s8" or changed in ("gpu_params.h", "epilogue.cuh") or changed == s + ".cu"]
    objects = []
    for s in again:
        if s == "hopper_16":
            continue
        out = place / (s + ".o")
        subprocess.run(["g++", *[f for f in FLAGS if f != "-shared"], "-c", *where, f'-DKERNEL_SOURCE="{s}.cu"', str(root / "tests/emulator/kernel.cc"), "-o", str(out)], check=True)
        objects.append(str(out))
    kept = [str(parts / f"libemulated_{s}.a") for s in SOURCES if s not in again or s == "hopper_16"]
    rest = [str(p) for p in (parts / "libcuda.so.1.p").glob("*.o")]
    out = place / "libcuda.so.1"
    subprocess.run(["g++", "-shared", *objects, *rest, "-Wl,--whole-archive", *kept, "-Wl,--no-whole-archive", "-o", str(out)], check=True)
    return out


def survives(lib):
    try:
        done = subprocess.run([str(build / "tests" / "gpu_probe")], env={**os.environ, "OCTET_TEST_LIBCUDA": str(lib)}, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return False, "it hangs"
    if done.returncode == 2:
        return True, "the probe could not run: " + done.stderr[-200:]
    said = (done.stderr.strip().splitlines() or ["signal %d" % -done.returncode])[0]
    return done.returncode == 0, said[:110]


def one(mutant):
    what, name, old, new = mutant
    with tempfile.TemporaryDirectory() as t:
        place = pathlib.Path(t) / "gpu"
        shutil.copytree(kernels, place)
        text = (place / name).read_text()
        if old not in text:
            return False, f"{what}: no longer in {name}; renew the mutant"
        (place / name).write_text(text.replace(old, new, 1))
        alive, said = survives(library(place, name))
    if what is None:
        return alive, "the source as it is: " + ("passes" if alive else "FAILS: " + said)
    return not alive, f"{what}: {'SURVIVED' if alive else said}"


workers = min(8, len(os.sched_getaffinity(0)))
with concurrent.futures.ThreadPoolExecutor(workers) as pool:
    results = [one(MUTANTS[0])] + list(pool.map(one, MUTANTS[1:]))
for caught, line in results:
    if not caught or "-v" in sys.argv:
        print(line)
missed = sum(not caught for caught, _ in results)
print(f"{len(results) - missed} passed, {missed} failed")
sys.exit(bool(missed))
