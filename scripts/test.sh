#!/usr/bin/env bash
# All tests, from a bare Debian 12: installs, builds, runs; three builds (plain with -Werror, address +
# undefined behaviour sanitizers, thread sanitizer). The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/setup.sh
install_packages $packages_build $packages_test

passed=0
failed=0
note() { echo "skipped: $1"; }

# Runs one test program and adds up what it reports: Criterion's synthesis, `N passed, N failed`, or its
# exit status.
run() {
    name=$1
    shift
    out=$("$@" 2>&1)
    code=$?
    line=$(printf '%s\n' "$out" | grep -aE 'Synthesis: Tested' | tail -1)
    plain=$(printf '%s\n' "$out" | grep -aE '^[0-9]+ passed, [0-9]+ failed' | tail -1)
    if [ -n "$line" ]; then
        p=$(printf '%s' "$line" | sed -E 's/.*Passing: ([0-9]+).*/\1/')
        f=$(printf '%s' "$line" | sed -E 's/.*Failing: ([0-9]+).*/\1/')
        c=$(printf '%s' "$line" | sed -E 's/.*Crashing: ([0-9]+).*/\1/')
        f=$((f + c))
    elif [ -n "$plain" ]; then
        p=${plain%% *}
        f=$(printf '%s' "$plain" | sed -E 's/.*, ([0-9]+) failed.*/\1/')
    else
        p=$((code == 0))
        f=0
    fi
    [ "$code" != 0 ] && [ "$f" = 0 ] && f=1
    passed=$((passed + p))
    failed=$((failed + f))
    printf '%-28s %4d passed, %d failed\n' "$name" "$p" "$f"
    [ "$f" = 0 ] || printf '%s\n' "$out" | grep -avE '^\[(----|====)\] *$' | tail -60
}

suite() { # DIR LABEL PROGRAMS...
    dir=$1
    label=$2
    shift 2
    for t in "$@"; do
        if [ -x "$dir/tests/$t" ]; then run "$label$t" "$dir/tests/$t" -j2; else note "$label$t: not built (see the summary of meson setup)"; fi
    done
}

mkdir -p build
programs="test_gemm test_float test_batch test_chain test_api test_views test_quant test_utilities test_system test_embedding test_bags test_training test_gpu test_gpu_choice test_asm test_kernels test_bag_kernels"
if build build/test -Dwerror=true -Dbenchmarks=disabled; then
    # shellcheck disable=SC2086
    suite build/test "" $programs
    run race build/test/tests/race
    if [ -x build/test/tests/gpu_probe ]; then
        run "gpu_kernels, emulated" build/test/tests/gpu_kernels
        run "gpu_probe, emulated" build/test/tests/gpu_probe
        run "planted bugs, emulated" python3 tests/emulator/mutants.py . build/test
    else
        note "GPU tests: they need g++ for the emulator"
    fi
    run old_client build/test/tests/old_client
    run hello build/test/examples/hello
    run digits build/test/examples/digits examples/digits
    run dlrm build/test/examples/dlrm
    run gpu_linear build/test/examples/gpu_linear
    run includes python3 tests/check_includes.py .
    run exports sh tests/check_exports.sh build/test/liboctet.so.0.4.0
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    if "$nvcc" -E -x cu kernels/gpu/version.cu >/dev/null 2>&1; then
        run "CUDA kernels built in" sh -c 'nm build/test/liboctet.a 2>/dev/null | grep -q octet_fatbin_portable'
        run "CUDA kernels' registers" python3 tests/check_cuda.py . "$nvcc"
    else
        note "compiling the CUDA kernels: no nvcc that works"
    fi
    run pkg-config sh tests/check_install.sh build/test
    run "test_gemm, portable" env OCTET_ISA=plain build/test/tests/test_gemm -j2
    run "test_views, portable" env OCTET_ISA=plain build/test/tests/test_views -j2
    run "test_float, portable" env OCTET_ISA=plain build/test/tests/test_float -j2
    run "test_batch, portable" env OCTET_ISA=plain build/test/tests/test_batch -j2
    run "test_embedding, portable" env OCTET_ISA=plain build/test/tests/test_embedding -j2
    run "test_bags, portable" env OCTET_ISA=plain build/test/tests/test_bags -j2
else
    failed=$((failed + 1))
fi
sanitized="-Dgpu=disabled -Db_lundef=false -Dbuildtype=debugoptimized -Dbenchmarks=disabled -Ddefault_library=both"
export UBSAN_OPTIONS=halt_on_error=1 ASAN_OPTIONS=detect_leaks=1
# shellcheck disable=SC2086
if build build/asan -Db_sanitize=address,undefined $sanitized; then
    suite build/asan "asan+ubsan " test_gemm test_float test_batch test_chain test_api test_views test_quant test_utilities test_system test_embedding test_bags test_training test_gpu test_kernels test_bag_kernels
else
    failed=$((failed + 1))
fi
# shellcheck disable=SC2086
if build build/tsan -Db_sanitize=thread $sanitized -Dtests=disabled; then
    run "tsan race" build/tsan/tests/race
else
    failed=$((failed + 1))
fi
grep -q avx2 /proc/cpuinfo || note "generated kernels on silicon: this CPU has no AVX2 (the interpreter ran them)"
note "GPU tests on a GPU: scripts/gpu.sh runs them where there is one (above they ran on the emulator)"
echo
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
