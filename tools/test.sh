#!/usr/bin/env bash
# Sets up, then runs the tests: units (ctest), then interposing, the fixed core and the rotating part (pytest).
# Tells at the end what each part took.
#
#   tools/test.sh [--all] [--fixed | --rotating] [ARGUMENTS FOR PYTEST]
#
#   --all       everything: the rotating part whole, and the parts that only CI runs, packages and sanitizers
#   --fixed     all but the rotating part
#   --rotating  the rotating part only
#
# In a first build the CUDA kernels are built for one architecture, another one each day; with --all for all.
#
#   PLEAT_TEST_DRAW=2026-11-26  the samples of that day (default: of today, UTC)
#   PLEAT_TEST_UNTIL=SECONDS    nothing of the rotating part starts after this time (since the epoch)
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLEAT_BUILD_DIR:-$root/build}
export PLEAT_BUILD_DIR=$build
export CI=${CI:-true}  # what is not built is a failure, not a skip
export PLEAT_TEST_DRAW=${PLEAT_TEST_DRAW:-$(date -u +%F)}
# shellcheck source=tools/parts.sh
source "$root/tools/parts.sh"

fixed=true rotating=true marks=()
while [ $# -gt 0 ]; do
  case $1 in
    --all) PLEAT_TEST_DRAW=all marks=(-m '') ;;
    --fixed) rotating=false ;;
    --rotating) fixed=false ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit ;;
    *) break ;;
  esac
  shift
done

run_pytest() {
  local name=$1
  shift
  part "$name" env -C "$root" "$build/venv/bin/python" -m pytest "${marks[@]}" "$@"
  [ "$part_code" = 5 ] || some=true  # 5: no test
}

choose_cuda_architectures "$build" "$PLEAT_TEST_DRAW"
part set-up bash "$root/tools/setup.sh" test
[ "$part_code" = 0 ] || { summary 'no set-up, no tests'; exit 1; }
printf '\nPLEAT_TEST_DRAW=%s\n' "$PLEAT_TEST_DRAW"

some=false
if $fixed; then
  part 'units' ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)"
  # By itself: start-up is a matter of microseconds.
  run_pytest 'interposing' tests/interpose "$@"
  # Three at a time keep two cores busy: their child processes, above all torch's import, have one thread each.
  run_pytest 'tools, whole processes' tests --ignore=tests/interpose --part fixed \
    -n 3 --dist loadfile --no-loadscope-reorder "$@"
fi
if $rotating; then
  run_pytest "rotating part" tests --part rotating -n 3 --dist load --maxschedchunk 1 "$@"
fi
# Arguments may leave parts without a test (exit code 5), not all of them.
if [ $# -gt 0 ] && $some; then
  for i in "${!part_names[@]}"; do [ "${part_codes[i]}" != 5 ] || part_codes[i]=0; done
fi
summary "tests, PLEAT_TEST_DRAW=$PLEAT_TEST_DRAW"
