#!/usr/bin/env bash
# Everything there is to do on a machine with a GPU: builds, checks, measures, tables. In stages, the cheapest first, each under eight
# minutes; a stage that is done is not repeated, so an interrupted run goes on where it was.
#
#   scripts/gpu.sh [DIR [STAGE...]]      DIR: where results go (default build/gpu-results); STAGE: build ceilings check names bf16 f16 int8 tune cpu
#
# Needs nvcc, meson and ninja; installs nothing.
set -u
cd "$(dirname "$0")/.." || exit 1
out=${1:-build/gpu-results}
[ $# -gt 0 ] && shift
stages=${*:-build ceilings check names bf16 f16 int8 tune cpu}
mkdir -p "$out" build
bench=build/gpu/benchmarks/octet-bench
limit=470
export OMP_NUM_THREADS=1

# M N K: linear layers of Llama 3 8B, 70B and 405B (each of 8 GPUs) at 512 and 4096 tokens, and squares.
llm="6144x4096 4096x4096 28672x4096 4096x14336 1280x8192 8192x1024 7168x8192 8192x3584 2304x16384 16384x2048 13312x16384 16384x6656"
shapes=""
for m in 512 4096; do for nk in $llm; do shapes="$shapes,${m}x$nk"; done; done
for s in 1024 1536 2048 3072 4096 6144 8192; do shapes="$shapes,${s}x${s}x$s"; done
shapes=${shapes#,}

gpu_clock() { nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null; }

# timed NAME COMMAND...: its output to $out/NAME.log, within the limit
timed() {
    name=$1
    shift
    echo "-- $name"
    timeout $limit "$@" >"$out/$name.log" 2>&1
    code=$?
    tail -40 "$out/$name.log"
    [ $code = 0 ] || echo "-- $name ended with status $code"
    return $code
}

measure() { # NAME TYPES SHAPES OPTIONS...
    name=$1; types=$2; list=$3
    shift 3
    (while :; do gpu_clock; sleep 1; done >"$out/$name.clocks") &
    clocks=$!
    timed "$name" "$bench" gemm --device=gpu --types="$types" --shapes="$list" --peers=cublaslt --min-time=0.3 --format=csv --out="$out/$name.csv" "$@"
    code=$?
    kill $clocks 2>/dev/null
    python3 benchmarks/gpu_table.py "$out/$name.csv" | tee "$out/$name.md"
    return $code
}

stage_build() {
    [ -f build/gpu/build.ninja ] || meson setup build/gpu -Dgpu=enabled >"$out/setup.log" 2>&1 || { tail -30 "$out/setup.log"; return 1; }
    timed build ninja -C build/gpu
}
stage_ceilings() {
    nvidia-smi | tee "$out/nvidia-smi.log"
    timed machine "$bench" machine --device=gpu
    build/gpu/examples/gpu_linear
}
stage_check() {
    export OCTET_TEST_GPU=real
    timed check build/gpu/tests/gpu_kernels
    code=$?
    if command -v compute-sanitizer >/dev/null; then
        timed memcheck compute-sanitizer --tool memcheck build/gpu/tests/gpu_kernels sums_as_they_are
        timed racecheck compute-sanitizer --tool racecheck build/gpu/tests/gpu_kernels tensor_core_sums_within_bound
    else
        echo "skipped: compute-sanitizer is not here"
    fi
    unset OCTET_TEST_GPU
    return $code
}
stage_names() { # which kernels cuBLASLt takes
    command -v ncu >/dev/null || { echo "skipped: ncu is not here"; return 0; }
    for t in bf16:bf16:bf16 f16:f16:f16 s8:s8:s32; do
        timed "names-${t%%:*}" ncu --clock-control none --metrics gpu__time_duration.sum -c 40 "$bench" gemm --device=gpu --types="$t" --shapes=4096x4096x4096 \
            --peers=cublaslt --min-time=0.001 --verify=off
    done
    return 0
}
stage_bf16() { measure bf16 bf16:bf16:bf16 "$shapes"; }
stage_f16() { measure f16 f16:f16:f16 "$shapes"; }
stage_int8() { measure s8 s8:s8:bf16 "4096x4096x4096,4096x4096x1024,4096x6144x4096,8192x8192x4096,8192x8192x1024,512x6144x4096,512x28672x4096" &&
    measure u8 u8:s8:u8 "4096x4096x4096,4096x4096x1024"; }
stage_tune() { measure tune-bf16 bf16:bf16:bf16 "512x4096x4096,512x6144x4096,1024x1024x1024,2048x2048x2048,4096x4096x4096,8192x8192x8192,4096x8192x1024" --kernel=all --min-time=0.1 &&
    measure tune-s8 s8:s8:bf16 "512x4096x4096,2048x2048x2048,4096x4096x4096,4096x4096x1024" --kernel=all --min-time=0.1; }
stage_cpu() { # the host's own cores
    grep -m1 'model name' /proc/cpuinfo
    timed cpu-machine "$bench" machine
    timed cpu-race build/gpu/tests/race
    timed cpu-f32 "$bench" gemm --types=f32:f32:f32 --shapes=1x1024x1024,128x128x128,512x512x512,1024x1024x1024
    timed cpu-int8 "$bench" gemm --data-b=t5 --shapes=1x1024x1024,64x800x320,512x512x512,1024x1024x1024
    timed cpu-bags "$bench" embedding --types=u8 --shapes=1000000x64x100x20,1000000x128x100x20
}

failed=0
for s in $stages; do
    if [ -f "$out/$s.done" ]; then echo "== $s: done before"; continue; fi
    echo "== $s  $(date +%T)  $(gpu_clock)"
    if "stage_$s"; then touch "$out/$s.done"; else failed=$((failed + 1)); [ "$s" = build ] && break; fi
done
echo "$(ls "$out"/*.done 2>/dev/null | wc -l) passed, $failed failed"
[ $failed = 0 ]
