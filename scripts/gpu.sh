#!/usr/bin/env bash
# Everything there is to do on a machine with a GPU: builds, checks, measures, tables. In stages, the cheapest first, each command
# within its limit (none over eight minutes); a stage that is done is not repeated, so an interrupted run goes on where it was. After each stage all
# results are also in one file, DIR.tgz.
#
#   scripts/gpu.sh [DIR [STAGE...]]      DIR: where results go (default build/gpu-results); STAGE: build ceilings check bf16 int8 f16 tune names cpu
#
# Needs nvcc, meson and ninja; installs nothing. A failed check ends it: figures of wrong kernels are worth nothing.
set -u
cd "$(dirname "$0")/.." || exit 1
out=${1:-build/gpu-results}
[ $# -gt 0 ] && shift
stages=${*:-build ceilings check bf16 int8 f16 tune names cpu}
mkdir -p "$out" build
bench=build/gpu/benchmarks/octet-bench
export OMP_NUM_THREADS=1
# cuBLASLt and its header where pip put them
wheel=$(python3 -c 'import glob, nvidia; print(next(iter(glob.glob(list(nvidia.__path__)[0] + "/cu1[0-9]")), ""))' 2>/dev/null)
[ -n "$wheel" ] && export LD_LIBRARY_PATH="$wheel/lib:${LD_LIBRARY_PATH:-}" CPATH="$wheel/include:${CPATH:-}"

# M N K: linear layers of Llama 3 8B, 70B and 405B (each of 8 GPUs) at 512 and 4096 tokens, and squares.
llm="6144x4096 4096x4096 28672x4096 4096x14336 1280x8192 8192x1024 7168x8192 8192x3584 2304x16384 16384x2048 13312x16384 16384x6656"
shapes=""
for m in 512 4096; do for nk in $llm; do shapes="$shapes,${m}x$nk"; done; done
for s in 1024 1536 2048 3072 4096 6144 8192; do shapes="$shapes,${s}x${s}x$s"; done
shapes=${shapes#,}

gpu_clock() { nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null; }

# timed SECONDS NAME COMMAND...: its output to $out/NAME.log
timed() {
    limit=$1
    name=$2
    shift 2
    echo "-- $name"
    timeout "$limit" "$@" >"$out/$name.log" 2>&1
    code=$?
    tail -40 "$out/$name.log"
    [ $code = 0 ] || echo "-- $name ended with status $code$([ $code = 124 ] && echo ", out of time")"
    return $code
}

measure() { # SECONDS NAME TYPES SHAPES OPTIONS...
    limit=$1; name=$2; types=$3; list=$4
    shift 4
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader -lms 1000 >"$out/$name.clocks" 2>/dev/null &
    clocks=$!
    timed "$limit" "$name" "$bench" gemm --device=gpu --types="$types" --shapes="$list" --peers=cublaslt --min-time=0.3 --format=csv --out="$out/$name.csv" "$@"
    code=$?
    kill $clocks 2>/dev/null
    python3 benchmarks/gpu_table.py "$out/$name.csv" | tee "$out/$name.md"
    grep -q ',cublaslt,' "$out/$name.csv" || { echo "-- $name: nothing was compared"; return 1; }
    return $code
}

stage_build() {
    [ -f build/gpu/build.ninja ] || meson setup build/gpu -Dgpu=enabled >"$out/setup.log" 2>&1 || { tail -30 "$out/setup.log"; return 1; }
    timed 470 build ninja -C build/gpu
}
stage_ceilings() {
    nvidia-smi | tee "$out/nvidia-smi.log"
    timed 60 machine "$bench" machine --device=gpu
    timed 30 linear build/gpu/examples/gpu_linear
}
stage_check() {
    export OCTET_TEST_GPU=real
    timed 240 check build/gpu/tests/gpu_kernels
    code=$?
    if [ $code = 0 ] && command -v compute-sanitizer >/dev/null; then # where it works: some virtual machines refuse it
        for tool in memcheck racecheck; do
            timed 90 $tool compute-sanitizer --tool $tool --error-exitcode 9 build/gpu/tests/gpu_kernels sums_as_they_are
            [ $? = 9 ] && code=9
        done
    fi
    unset OCTET_TEST_GPU
    return $code
}
stage_names() { # which kernels cuBLASLt takes
    command -v ncu >/dev/null || { echo "skipped: ncu is not here"; return 0; }
    for t in bf16:bf16:bf16 s8:s8:s32; do
        timed 120 "names-${t%%:*}" ncu --clock-control none --metrics gpu__time_duration.sum -c 200 "$bench" gemm --device=gpu --types="$t" --shapes=4096x4096x4096 \
            --peers=cublaslt --min-time=0.001 --verify=off
    done
    return 0
}
stage_bf16() { measure 300 bf16 bf16:bf16:bf16 "$shapes"; }
stage_f16() { measure 300 f16 f16:f16:f16 "$shapes"; }
stage_int8() { measure 150 s8 s8:s8:bf16 "4096x4096x4096,4096x4096x1024,4096x6144x4096,8192x8192x4096,8192x8192x1024,512x6144x4096,512x28672x4096" &&
    measure 90 u8 u8:s8:u8 "4096x4096x4096,4096x4096x1024"; }
stage_tune() { measure 240 tune-bf16 bf16:bf16:bf16 "512x4096x4096,512x6144x4096,1024x1024x1024,2048x2048x2048,4096x4096x4096,8192x8192x8192,4096x8192x1024" --kernel=all --min-time=0.1 &&
    measure 150 tune-s8 s8:s8:bf16 "512x4096x4096,2048x2048x2048,4096x4096x4096,4096x4096x1024" --kernel=all --min-time=0.1; }
stage_cpu() { # the host's own cores
    grep -m1 'model name' /proc/cpuinfo
    timed 60 cpu-machine "$bench" machine
    timed 60 cpu-race build/gpu/tests/race
    timed 60 cpu-f32 "$bench" gemm --types=f32:f32:f32 --shapes=1x1024x1024,128x128x128,512x512x512,1024x1024x1024
    timed 60 cpu-int8 "$bench" gemm --data-b=t5 --shapes=1x1024x1024,64x800x320,512x512x512,1024x1024x1024
    timed 60 cpu-bags "$bench" embedding --types=u8 --shapes=1000000x64x100x20,1000000x128x100x20
}

failed=0
for s in $stages; do
    if [ -f "$out/$s.done" ]; then echo "== $s: done before"; continue; fi
    echo "== $s  $(date +%T)  $(gpu_clock)"
    if "stage_$s"; then touch "$out/$s.done"; else failed=$((failed + 1)); fi
    tar -czf "$out.tgz" -C "$(dirname "$out")" "$(basename "$out")"
    case $s in build | ceilings | check) [ -f "$out/$s.done" ] || break ;; esac
done
echo "$(ls "$out"/*.done 2>/dev/null | wc -l) passed, $failed failed"
[ $failed = 0 ]
