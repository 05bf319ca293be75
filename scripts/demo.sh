#!/usr/bin/env bash
# The main job on real input, from a bare Debian 12: a classifier of handwritten digits, trained in f32,
# quantized by octet and run in int8; a recommendation model (DLRM) in f32 and int8; then a few shapes beside the peers that are installed.
set -eu
cd "$(dirname "$0")/.."
. scripts/setup.sh
install_packages $packages_build $packages_bench
mkdir -p build
build build/demo -Dtests=disabled
build/demo/examples/digits examples/digits
echo
build/demo/examples/dlrm
echo
build/demo/examples/gpu_linear
if [ -x build/demo/benchmarks/octet-bench ]; then
    build/demo/benchmarks/octet-bench gemm --isa=avx2 --peers=all --data-b=t5 --min-time=0.05 \
        --shapes=1x1024x1024,16x256x512,64x800x320,128x128x128,512x512x512
    echo
    build/demo/benchmarks/octet-bench gemm --isa=avx2 --types=f32:f32:f32 --peers=all --min-time=0.05 --shapes=1x1024x1024,16x256x512,128x128x128
    echo
    build/demo/benchmarks/octet-bench embedding --isa=avx2 --types=u8 --peers=touch,plain --min-time=0.05 --shapes=1000000x16x100x20,1000000x64x100x20,1000000x128x100x20
    echo
    echo "peers are capped at AVX2 like octet's kernels; 'no' under right: the peer saturated and returned wrong sums"
else
    echo "skipped: the table of shapes (octet-bench needs g++ and libbenchmark-dev)"
fi
echo "skipped: figures on a GPU (scripts/gpu.sh takes them where there is one); FBGEMM (meson -Dfbgemm=PREFIX to compare with it)"
