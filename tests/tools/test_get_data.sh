#!/usr/bin/env bash
# tools/get-data.sh in a checkout of its own: what it links, copies, fetches, refuses and says. Neither network nor real data are needed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
source tests/support/expect.sh
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/checkout/tools/data" "$place/bin" "$place/shared/set5" "$place/package/usr/share/backgrounds/mate/nature" "$place/package/usr/share/backgrounds/mate/desktop"
cp tools/get-data.sh "$place/checkout/tools"
touch "$place/checkout/CMakeLists.txt"
cd "$place/checkout" || exit 1

# Sets of our own: two pictures, two packed files, weights, and a package's photographs.
echo one >"$place/shared/set5/a.png"
echo two >"$place/shared/set5/b.png"
(cd "$place/shared/set5" && sha256sum a.png b.png) >tools/data/set5.sha256
echo digits >digits-idx && sha256sum digits-idx >tools/data/mnist.sha256
echo weights >"$place/w.safetensors" && (cd "$place" && sha256sum w.safetensors) >tools/data/vgg19.sha256
echo photo >"$place/package/usr/share/backgrounds/mate/nature/c.jpg"
echo drawing >"$place/package/usr/share/backgrounds/mate/desktop/d.jpg"
(cd "$place/package/usr/share/backgrounds/mate/nature" && sha256sum c.jpg) >tools/data/debian-photos.sha256
cp tools/data/set5.sha256 tools/data/photos.sha256

# An apt-get that finds a package at its second call and dpkg that unpacks it.
cat >"$place/bin/apt-get" <<APT
#!/bin/sh
echo "\$*" >>$place/apt.log
case \$1 in update) touch $place/updated ;; download) [ -e $place/updated ] && touch "\$2_1_all.deb" ;; esac
APT
printf '#!/bin/sh\ncp -r %s/package/. "$3"\n' "$place" >"$place/bin/dpkg"
chmod +x "$place/bin"/*
export PATH="$place/bin:$PATH"

holds() { [ -e "$1" ] || { echo "FAILED: there is no $1"; failed=1; }; }
lacks() { [ ! -e "$1" ] || { echo "FAILED: there is $1"; failed=1; }; }

get() { env -u COD_DATA tools/get-data.sh "$@"; }
expect 0 "usage: tools/get-data.sh" get --help
expect 2 "there is no set 'imagenet'; sets are: photos" get imagenet
expect 2 "unknown option '--frobnicate'" get --frobnicate
expect 2 "--from goes with the name of one set" get --from . set5 mnist
expect 1 "'/nowhere' is not a folder" get --from /nowhere set5
expect 2 "--check needs" get --check
expect 0 "tools/get-data.sh NAME brings one" get
lacks data

# Nobody has it: the command says where to get it, and how it is brought in then.
expect 1 "download it to a folder DIR, then: tools/get-data.sh set5 --from DIR" get set5
expect 1 "there is no data/set5; tools/get-data.sh set5 brings it" get --check set5
lacks data/set5

# It lies in COD_DATA.
expect 0 "set5: 2 files in data/set5" env COD_DATA="$place/shared" tools/get-data.sh set5
holds data/set5/b.png
expect 0 "set5: data/set5 is complete (2 files)" get set5
expect 0 "set5: data/set5 is complete (2 files)" get --check set5
expect 0 "data/set5" get
echo changed >"$place/shared/set5/a.png"
expect 1 "other content: a.png" get --check set5
rm "$place/shared/set5/b.png"
expect 1 "holds 0 of the 2 files; missing: b.png; other content: a.png" get --check set5

# A folder that holds something else is left alone.
rm -r data/set5 && mkdir data/set5 && echo mine >data/set5/mine.png
mkdir -p "$place/download/deep"
echo one >"$place/download/deep/a.png"
expect 1 "missing: b.png" get --from "$place/download" set5
echo two >"$place/download/b.png"
expect 1 "data/set5 is there, holds something else, and is left as it is" get --from "$place/download" set5
holds data/set5/mine.png
rm -r data/set5
expect 0 "set5: 2 files in data/set5" env -C "$place" -u COD_DATA "$PWD/tools/get-data.sh" --from download set5
holds data/set5/a.png
# Installed, it fills the folder that it is called in.
mkdir "$place/prefix" "$place/elsewhere" && cp -r tools "$place/prefix"
expect 0 "set5: 2 files in data/set5" env -C "$place/elsewhere" -u COD_DATA "$place/prefix/tools/get-data.sh" --from ../download set5
holds "$place/elsewhere/data/set5/a.png"
lacks "$place/prefix/data"
if [ -L data/set5/a.png ]; then echo "FAILED: --from left a link" && failed=1; fi

# Packed or not, a file is told by what it holds.
mkdir "$place/packed" && mv digits-idx "$place/packed" && gzip "$place/packed/digits-idx"
expect 0 "mnist: 1 files in data/mnist" get --from "$place/packed" mnist
holds data/mnist/digits-idx.gz
expect 0 "complete" get --check mnist
echo rubbish >data/mnist/digits-idx.gz
expect 1 "other content: digits-idx" get --check mnist

# Weights that were converted by somebody else are taken.
mkdir "$place/converted" && echo others >"$place/converted/w.safetensors"
expect 0 "is not the file that Codistill's figures were measured with" get --from "$place/converted" vgg19
holds data/vgg19/w.safetensors

# Photographs come from Debian's package, drawings do not; BSDS500's take their place when they come.
expect 0 "were measured on 100 photographs of BSDS500" get photos
[ "$(tr '\n' ';' <"$place/apt.log")" = "download mate-backgrounds;update -qq;download mate-backgrounds;" ] || { cat "$place/apt.log"; failed=1; }
holds data/photos/c.jpg
lacks data/photos/d.jpg
expect 0 "stands for data/debian-photos" get --check photos
expect 0 "data/debian-photos is complete" get debian-photos
expect 0 "photos: 2 files in data/photos" get --from "$place/download" photos
holds data/photos/a.png
lacks data/photos/c.jpg
holds data/debian-photos/c.jpg

# A package whose photographs are others than those that are known, and one that has none.
rm -r data/debian-photos && echo other >"$place/package/usr/share/backgrounds/mate/nature/c.jpg"
expect 0 "debian-photos: 1 files in data/debian-photos" get debian-photos
rm -r data/debian-photos "$place/package/usr/share/backgrounds/mate/nature/c.jpg"
expect 1 "missing: c.jpg" get debian-photos
lacks data/debian-photos
printf '#!/bin/sh\nexit 1\n' >"$place/bin/apt-get"
expect 1 "apt-get could not download mate-backgrounds; is there a network" get debian-photos

exit $failed
