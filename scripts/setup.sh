# Sourced by the other scripts: installs what the build needs on Debian 12, once. Says what is missing.
packages_build="gcc g++ meson ninja-build pkg-config libpthreadpool-dev"
packages_test="libcriterion-dev libzydis-dev binutils python3"
packages_bench="libbenchmark-dev libdnnl-dev libopenblas0-pthread libblis4"

install_packages() {
    missing=""
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q "install ok installed" || missing="$missing $p"
    done
    [ -z "$missing" ] && return 0
    sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    echo "installing:$missing"
    $sudo apt-get update -qq >/dev/null 2>&1 || true
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && return 0
    # one that cannot be had should not keep the others away
    for p in $missing; do
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$p" >/dev/null 2>&1 ||
            echo "left out: package $p could not be installed"
    done
}

# build DIR OPTIONS...: configures once, compiles what changed.
build() {
    dir=$1
    shift
    if [ ! -f "$dir/build.ninja" ]; then
        meson setup "$dir" "$@" >"$dir.log" 2>&1 || { cat "$dir.log"; return 1; }
    fi
    ninja -C "$dir" >"$dir.log" 2>&1 || { tail -40 "$dir.log"; return 1; }
}
