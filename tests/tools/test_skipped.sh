#!/usr/bin/env bash
# What tools/skipped.sh says of a ctest of its own, and which Python tests/support/peer_python.sh takes.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
{
    for name in good slurm cuda_device completion_zsh test_infer_onnx strange; do
        code=77
        [ $name != good ] || code=0
        echo "add_test($name sh -c \"exit $code\")"
        echo "set_tests_properties($name PROPERTIES SKIP_RETURN_CODE 77)"
    done
    echo "set_tests_properties(test_infer_onnx PROPERTIES LABELS peers)"
} >CTestTestfile.cmake
ctest >ctest.log
"$root/tools/skipped.sh" "$folder" >said
cat >expected <<EXPECTED
skipped: 5 tests
skipped: 1 against other programs, which this command runs: tools/test.sh --peers
skipped: 1 under Slurm, which this command runs: tools/setup.sh --with-slurm && tools/test.sh --filter ^slurm
skipped: 1 on a GPU, which this command runs where there is one: tools/gpu-check.sh
skipped: 1 of completion in zsh and fish, which this command runs: apt-get install zsh fish && tools/test.sh --filter ^completion
skipped: 1 for reasons that they print, in $folder/ctest.log: strange
EXPECTED
diff expected said || exit 1
ctest -R good >ctest.log
[ -z "$("$root/tools/skipped.sh" "$folder")" ] || { echo "FAILED: nothing was skipped"; exit 1; }

# The environment that is named, then the one in the cache, each only where it has a Python.
mkdir -p named/bin home/.cache/codistill/venv-peers/bin
for place in named home/.cache/codistill/venv-peers; do
    printf '#!/bin/sh\necho "%s $*"\n' "$place" >$place/bin/python
    chmod +x $place/bin/python
done
run() { env -u XDG_CACHE_HOME HOME="$folder/home" "$@" "$root/tests/support/peer_python.sh" script a; }
[ "$(run COD_PEERS="$folder/named")" = "named script a" ] || { echo "FAILED: COD_PEERS is not taken"; exit 1; }
[ "$(run COD_PEERS="$folder/nowhere")" = "home/.cache/codistill/venv-peers script a" ] || { echo "FAILED: the cache is not taken"; exit 1; }
[ "$(run XDG_CACHE_HOME="$folder/home/.cache" HOME=/nowhere)" = "home/.cache/codistill/venv-peers script a" ] || { echo "FAILED: XDG_CACHE_HOME"; exit 1; }
