#!/usr/bin/env bash
# Packs the finished release build with all that a machine with a GPU may lack into build/gpu-bundle/bundle.tar.xz: the command, the
# libraries that it needs, Open MPI, configurations, photographs and MNIST. tools/gpu-check.sh --whole unpacks and runs it there.
# The C library and those of the compiler and of the driver are the machine's own.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${COD_BUNDLE_PROGRAM:-build/release/codistill}
data=${COD_DATA:-data}
target=build/gpu-bundle
most_bytes=47000000 # with what git tracks, below the 64 MiB that may travel
photos=24
digits=10000 # of MNIST's training examples; the trial takes 4000 of them

fail() { echo "gpu-bundle: $*" >&2; exit 1; }
[ -x "$program" ] || fail "$program is not there; build it: cmake --preset release && cmake --build --preset release --target codistill"
if [ ! -d "$data/photos" ] || [ ! -d "$data/set5" ] || [ ! -d "$data/mnist" ]; then fail "'$data' lacks photos, set5 or mnist; set COD_DATA"; fi
command -v ompi_info >/dev/null || fail "ompi_info is missing: only Open MPI can be packed"
mpi_path() { ompi_info --path "$1" --parsable | sed -n "s/^path:$1://p" | head -n 1; }
prefix=$(mpi_path prefix)
plugins=$(mpi_path pkglibdir)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
bundle=$stage/codistill
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/mpi/bin" "$bundle/mpi/etc" "$bundle/data/photos" "$bundle/data/set5" "$bundle/data/mnist"

# The machine's own: glibc, which fits its loader, what its compiler brings, and the driver's.
is_of_the_machine() {
    case $(basename "$1") in
        ld-linux*|libc.so.*|libm.so.*|libdl.so.*|librt.so.*|libpthread.so.*|libutil.so.*|libresolv.so.*|libmvec.so.*) return 0 ;;
        libstdc++.so.*|libgcc_s.so.*|libcuda.so.*|libnvidia-*) return 0 ;;
    esac
    return 1
}

# Copies what a program or a plug-in needs; fails where something of that is missing here.
add_libraries() {
    local path
    ! ldd "$1" | grep -q 'not found' || return 1
    while IFS= read -r path; do
        is_of_the_machine "$path" || cp -uL "$path" "$bundle/lib/"
    done < <(ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }')
}

strip -g -o "$bundle/bin/codistill" "$program"
add_libraries "$program" || fail "$program lacks libraries here: $(ldd "$program" | grep 'not found')"

# Open MPI below one folder, where OPAL_PREFIX finds it; plug-ins of networks that one machine does not have stay behind.
inside() { echo "$bundle/mpi/${1#"$prefix"/}"; }
cp -L "$prefix/bin/orterun" "$bundle/mpi/bin/mpirun"
cp -L "$prefix/bin/orted" "$bundle/mpi/bin/"
for tool in mpirun orted; do add_libraries "$bundle/mpi/bin/$tool" || fail "Open MPI's $tool lacks libraries here"; done
mkdir -p "$(inside "$plugins")" "$(inside "$(mpi_path pkgdatadir)")"
cp -rL "$(mpi_path pkgdatadir)/." "$(inside "$(mpi_path pkgdatadir)")/"
cp -rL "$(mpi_path sysconfdir)/." "$bundle/mpi/etc/"
for plugin in "$plugins"/mca_*.so; do
    case $(basename "$plugin") in
        *_ucx.so|*_ofi.so|*_psm*.so|*_openib.so|*_slurm.so|*_gridengine.so|*_flux.so|*_monitoring.so) ;;
        *) add_libraries "$plugin" && cp -L "$plugin" "$(inside "$plugins")/" ;;
    esac
done
pmix=$(ldd "$(inside "$plugins")"/mca_pmix_ext3x.so 2>/dev/null | awk '$1 ~ /^libpmix/ { print $3 }')
if [ -n "$pmix" ]; then
    pmix_prefix=$(dirname "$(dirname "$(readlink -f "$pmix")")")
    mkdir -p "$bundle/mpi/pmix/lib" "$bundle/mpi/pmix/share"
    cp -rL "$pmix_prefix/lib/pmix" "$bundle/mpi/pmix/lib/"
    cp -rL "$pmix_prefix/share/pmix" "$bundle/mpi/pmix/share/"
fi

cp -r configs "$bundle/"
cp tools/gpu-whole.sh "$bundle/whole.sh"
cp tools/gpu-libraries.sh "$bundle/libraries.sh"
find "$data/photos" -name '*.jpg' | sort | awk -v most=$photos 'NR <= most' | xargs cp -t "$bundle/data/photos"
cp "$data"/set5/*_HR.png "$bundle/data/set5/"
# IDX: 00 00 type dimensions, their sizes in 4 bytes each, of which the first counts the examples.
python3 - "$bundle/data/mnist" $digits "$data"/mnist/*.gz <<'CUT'
import gzip, math, os, shutil, struct, sys
for path in sys.argv[3:]:
    target = os.path.join(sys.argv[1], os.path.basename(path))
    if not os.path.basename(path).startswith("train-"):
        shutil.copyfile(path, target)
        continue
    with gzip.open(path) as file:
        head = file.read(4)
        sizes = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
        count = min(int(sys.argv[2]), sizes[0])
        body = file.read(count * math.prod(sizes[1:]))
    with open(target, "wb") as out, gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
        packed.write(head + struct.pack(f">{head[3]}I", count, *sizes[1:]) + body)
CUT
cat >"$bundle/codistill" <<'START'
#!/bin/sh
# Starts the packed command, wherever the folder lies.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPAL_PREFIX="$here/mpi" OPAL_SYSCONFDIR="$here/mpi/etc" PMIX_INSTALL_PREFIX="$here/mpi/pmix" COD_MPIEXEC="$here/mpi/bin/mpirun"
exec "$here/bin/codistill" "$@"
START
chmod +x "$bundle/codistill" "$bundle/whole.sh"

rm -rf "$target"
mkdir -p "$target"
tar -C "$stage" -cf - codistill | xz -T 2 -6 >"$target/bundle.tar.xz"
bytes=$(stat -c %s "$target/bundle.tar.xz")
[ "$bytes" -le $most_bytes ] || fail "$target/bundle.tar.xz has $bytes bytes, more than $most_bytes"
echo "gpu-bundle: $target, $((bytes / 1000000)) MB packed, $(du -sm "$bundle" | cut -f 1) MB unpacked, $(find "$bundle/lib" -type f | wc -l) libraries"
