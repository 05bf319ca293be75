#!/bin/sh
# Installs to a folder of its own, then builds and runs hello.c as its first line says, in C and in C++.
set -e
build=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
DESTDIR=$root meson install -C "$build" --no-rebuild >/dev/null
pc=$(dirname "$(find "$root" -name octet.pc)")
export PKG_CONFIG_LIBDIR=$pc PKG_CONFIG_SYSROOT_DIR=$root
lib=$(dirname "$(find "$root" -name liboctet.so)")
cc examples/hello.c $(pkg-config --cflags --libs octet) -o "$root/hello"
LD_LIBRARY_PATH=$lib "$root/hello"
cc examples/gpu_linear.c $(pkg-config --cflags --libs octet) -ldl -o "$root/linear"
LD_LIBRARY_PATH=$lib "$root/linear"
printf '#include <octet.h>\n#include <octet/quant.h>\n#include <octet/embedding.h>\n#include <octet/gpu.h>\nint main() { octet_gpu_opts go = OCTET_GPU_OPTS; octet_gpu_info gi = OCTET_GPU_INFO; octet_gpu_choice gc = OCTET_GPU_CHOICE; octet_gpu_kernel gk = OCTET_GPU_KERNEL; octet_gemm_desc d = OCTET_GEMM_DESC; octet_gemm_args x = OCTET_GEMM_ARGS; octet_quant q = OCTET_QUANT; octet_ctx_opts o = OCTET_CTX_OPTS; octet_requant r = OCTET_REQUANT; octet_cache_stats s = OCTET_CACHE_STATS; octet_bag_desc bd = OCTET_BAG_DESC; octet_bag_table bt = OCTET_BAG_TABLE; octet_bag_args ba = OCTET_BAG_ARGS; octet_bag_step bs = OCTET_BAG_STEP; octet_bag_update bu = OCTET_BAG_UPDATE; octet_bag_report br = OCTET_BAG_REPORT; return go.size && gi.size && gc.size && gk.size && bd.size && bt.size && ba.size && bs.size && bu.size && br.size && d.size && x.size && q.size && o.size && r.size && s.size ? 0 : 1; }\n' >"$root/h.cc"
g++ -std=c++17 -Wall -Wextra -Werror "$root/h.cc" $(pkg-config --cflags octet) -o "$root/hcc"
"$root/hcc"
