# Sourced: how Debian packages are installed here, if they can be without asking anybody.

# Installs the package named, quietly; fails without apt-get, or without the rights.
install_package() {
    local sudo=()
    if ! command -v apt-get >/dev/null; then
        return 1
    fi
    if [[ $(id -u) -ne 0 ]]; then
        sudo=(sudo -n)
        "${sudo[@]}" true 2>/dev/null || return 1
    fi
    "${sudo[@]}" apt-get -qq update </dev/null \
        && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get -qq install --yes --no-install-recommends "$1" </dev/null >/dev/null
}
