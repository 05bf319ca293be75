#!/bin/sh
# The shared library exports octet_* and the debugger's two names, and nothing else.
lib=$1
extra=$(nm -D --defined-only "$lib" | awk '{print $3}' | sed 's/@.*//' | grep -vE '^(octet_[a-z0-9_]+|__jit_debug_(descriptor|register_code)|OCTET_0)$')
[ -z "$extra" ] || { echo "exported by accident: $extra"; exit 1; }
missing=0
for f in $(grep -ohE '\boctet_[a-z0-9_]+ ?\(' include/octet.h include/octet/quant.h | tr -d ' (' | sort -u); do
    grep -qE "OCTET_API.*\b$f\(" include/octet.h include/octet/quant.h || continue
    nm -D --defined-only "$lib" | grep -qE " $f(@|$)" || { echo "declared but not exported: $f"; missing=1; }
done
exit $missing
