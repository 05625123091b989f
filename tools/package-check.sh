#!/usr/bin/env bash
# Installs a Debian package of Codistill on a bare Debian 12, which debootstrap makes in a folder, and upscales a picture there.
# Needs root, debootstrap and Debian's package server; takes about five minutes.
#
# usage: tools/package-check.sh [--keep] [DEB]
#   DEB     the package; default: build/release/codistill_*.deb, which (cd build/release && cpack) makes
#   --keep  leaves the folder of the bare system where it is
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/package-check.sh; }
bad_usage() { echo "package-check: $1; see tools/package-check.sh --help" >&2; exit 2; }
die() { echo "package-check: $*" >&2; exit 1; }
say() { echo "== $* ($((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

keep=no
package=
while [ $# -gt 0 ]; do
    case $1 in
        --keep) keep=yes ;;
        -h | --help) usage; exit 0 ;;
        -*) bad_usage "unknown option '$1'" ;;
        *) [ -z "$package" ] || bad_usage "one package is wanted, not also '$1'"; package=$1 ;;
    esac
    shift
done
if [ -z "$package" ]; then
    packages=(build/release/codistill_*.deb)
    [ ${#packages[@]} = 1 ] && package=${packages[0]}
fi
[ -f "$package" ] || die "there is no package '$package'; (cd build/release && cpack) makes it"
[ "$(id -u)" = 0 ] || die "a bare system is made by root"
command -v debootstrap >/dev/null || die "debootstrap is missing; apt install debootstrap"

bare=$(mktemp -d)
chmod 755 "$bare" # apt fetches as a user without rights
clean_up() { [ $keep = yes ] && say "the bare system is in $bare" || rm -rf --one-file-system "$bare"; }
trap clean_up EXIT
# In namespaces of its own: /proc is mounted for the command alone, so that removing the folder is safe.
inside() { unshare --mount --pid --fork --root="$bare" --mount-proc env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

say "a bare Debian 12"
debootstrap --variant=minbase bookworm "$bare" http://deb.debian.org/debian >"$bare.log" 2>&1 || { tail -5 "$bare.log" >&2; die "debootstrap failed"; }
rm -f "$bare.log"
say "installing $package"
cp "$package" "$bare/root/codistill.deb"
cp tests/data/golden/baseline.jpg "$bare/root/photo.jpg"
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends /root/codistill.deb >"$bare/root/apt.log" 2>&1 || { tail -5 "$bare/root/apt.log" >&2; die "apt cannot install it"; }
say "using it"
inside codistill --version
inside codistill upscale /root/photo.jpg --output /root/large.png
[ -s "$bare/root/large.png" ] || die "there is no large picture"
inside man -w codistill 2>/dev/null || [ -f "$bare/usr/share/man/man1/codistill.1.gz" ] || [ -f "$bare/usr/share/man/man1/codistill.1" ] ||
    die "there is no manual page"
say "the package works on a bare Debian 12"
