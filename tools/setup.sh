#!/usr/bin/env bash
# Installs the Debian packages that Codistill is built and tested with. Asks dpkg what is missing and does nothing when
# all is there. Needs root, or sudo.
#
# usage: tools/setup.sh [--with-slurm] [--list] [--check] [--help]
#   --with-slurm  also Slurm and munge, for the test of that name, which skips itself where they are not
#   --list        prints the packages, installs nothing
#   --check       says what is missing, installs nothing; exit code 1 when something is
set -euo pipefail

packages=(
    gcc g++ cmake ninja-build pkg-config ccache git ca-certificates   # build
    openmpi-bin libopenmpi-dev                                       # message passing
    libdnnl-dev                                                      # CPU kernels
    libyaml-dev liblz4-dev libzstd-dev libxxhash-dev libcjson-dev    # configs, codec, checksums, JSON
    libsodium-dev                                                    # seals on files that others may write
    libpng-dev libjpeg-dev libturbojpeg0-dev libwebp-dev libtiff-dev liblcms2-dev zlib1g-dev  # images, data sets
    librsvg2-dev fonts-dejavu-core                                   # plots of reports as PNG; without it there are none
    libcmocka-dev clang-format python3 spin iproute2                 # tests, lint, model checker, laboratory network
    chromium-headless-shell                                          # tests: how reports look; skipped without it
    python3-numpy python3-pytest                                     # tests: the Python package
)

say() { echo "setup: $*"; }
die() { echo "setup: error: $*" >&2; exit 1; }

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }

# Prints the packages that are not installed, one a line.
missing_packages() {
    local installed
    installed=$(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
        awk '$2 == "installed" { sub(/:.*/, "", $1); print $1 }' || true)
    printf '%s\n' "${packages[@]}" | grep -vxF -f <(printf '%s\n' "$installed" | grep .) || true
}

install_packages() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "not root and no sudo; run as root: apt-get install $*"
        as_root=(sudo)
    fi
    # noninteractive: no question may stop an unattended run. env, because sudo drops the environment.
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0)
    "${apt[@]}" update || { say "apt-get update failed; trying once more in 5 s"; sleep 5; "${apt[@]}" update; } ||
        die "apt-get update failed twice; is there a network and a right /etc/apt/sources.list?"
    "${apt[@]}" install -y --no-install-recommends "$@" || die "apt-get could not install: $*"
}

mode=install
while [ $# -gt 0 ]; do
    case $1 in
        --with-slurm) packages+=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge) ;;
        --list) mode=list ;;
        --check) mode=check ;;
        -h | --help) usage; exit 0 ;;
        *) echo "setup: unknown option '$1'; see tools/setup.sh --help" >&2; exit 2 ;;
    esac
    shift
done

if [ $mode = list ]; then
    printf '%s\n' "${packages[@]}"
    exit 0
fi
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "no dpkg and apt-get here; this script is for Debian 12. Install the equivalents of: ${packages[*]}"
if ! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
    say "this is not Debian 12 (bookworm), on which everything is tried; package names may differ"
fi

mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -eq 0 ]; then
    say "all ${#packages[@]} packages are installed"
    exit 0
fi
say "missing: ${missing[*]}"
[ $mode = install ] || exit 1
install_packages "${missing[@]}"
mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -eq 0 ] || die "still missing after the installation: ${missing[*]}"
say "done"
