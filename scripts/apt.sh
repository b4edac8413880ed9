# Sourced: how Debian packages are installed here, if they can be without asking anybody.

# Set once the lists of packages are new.
apt_updated=

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
    if [[ -z $apt_updated ]]; then
        # A source that does not answer must not keep us from what the others have.
        "${sudo[@]}" apt-get -qq -o DPkg::Lock::Timeout=120 update </dev/null || true
        apt_updated=yes
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends "$1" </dev/null >/dev/null
}
