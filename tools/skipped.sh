#!/usr/bin/env bash
# Counts the tests that a ctest has skipped and says what would run them; prints nothing where none were.
#
# usage: tools/skipped.sh FOLDER     FOLDER: of the tests, with what that ctest printed in FOLDER/ctest.log
set -uo pipefail
case ${1-} in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    '') echo "skipped: the folder of the tests is missing; see tools/skipped.sh --help" >&2; exit 2 ;;
esac
[ -f "$1/ctest.log" ] || { echo "skipped: there is no $1/ctest.log" >&2; exit 1; }

mapfile -t skipped < <(sed -n 's/^[[:space:]]*[0-9]* - \(.*\) (Skipped).*$/\1/p' "$1/ctest.log")
[ ${#skipped[@]} -gt 0 ] || exit 0
against_peers=$(ctest --test-dir "$1" --show-only --label-regex '^peers$' 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: //p')

peers=0 slurm=0 device=0 shells=0 others=()
for name in "${skipped[@]}"; do
    if grep -qxF -e "$name" <<<"$against_peers"; then
        peers=$((peers + 1))
    else
        case $name in
            slurm | slurm_*) slurm=$((slurm + 1)) ;;
            *_device) device=$((device + 1)) ;;
            completion_*) shells=$((shells + 1)) ;;
            *) others+=("$name") ;;
        esac
    fi
done
echo "skipped: ${#skipped[@]} tests"
[ $peers -eq 0 ] || echo "skipped: $peers against other programs, which this command runs: tools/test.sh --peers"
[ $slurm -eq 0 ] || echo "skipped: $slurm under Slurm, which this command runs: tools/setup.sh --with-slurm && tools/test.sh --filter ^slurm"
[ $device -eq 0 ] || echo "skipped: $device on a GPU, which this command runs where there is one: tools/gpu-check.sh"
[ $shells -eq 0 ] || echo "skipped: $shells of completion in zsh and fish, which this command runs: apt-get install zsh fish && tools/test.sh --filter ^completion"
[ ${#others[@]} -eq 0 ] || echo "skipped: ${#others[@]} for reasons that they print, in $1/ctest.log: ${others[*]}"
