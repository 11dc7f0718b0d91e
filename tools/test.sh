#!/usr/bin/env bash
# Sets up, then runs all tests: ctest (units), then pytest (operators, tools, whole processes). Arguments go to pytest.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLEAT_BUILD_DIR:-$root/build}
export PLEAT_BUILD_DIR=$build
export CI=${CI:-true}  # what is not built is a failure, not a skip

bash "$root/tools/setup.sh" test || exit 1
set_up_seconds=$SECONDS

printf '\n== units (ctest)\n'
start=$SECONDS
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)"
units=$?
units_seconds=$((SECONDS - start))

run_pytest() {
  (cd "$root" && "$build/venv/bin/python" -m pytest "$@")
}

# By itself: start-up is a matter of microseconds.
printf '\n== interposing (pytest)\n'
start=$SECONDS
run_pytest tests/interpose "$@"
interposing=$?
interposing_seconds=$((SECONDS - start))

# Three files at a time keep two cores busy: what they start, torch's import above all, has one thread each.
# In the order of collection: the operator table, which takes longest, begins.
printf '\n== operators, tools and whole processes (pytest)\n'
start=$SECONDS
run_pytest tests --ignore=tests/interpose -n 3 --dist loadfile --no-loadscope-reorder "$@"
processes=$?
processes_seconds=$((SECONDS - start))

# Arguments may leave one of the two without a test (exit code 5), not both.
none=5
[ $# -gt 0 ] && [ $interposing = $none ] && [ $processes != $none ] && interposing=0
[ $# -gt 0 ] && [ $processes = $none ] && [ $interposing != $none ] && processes=0

verdict() { if [ "$1" = 0 ]; then echo "passed in $2 s"; else echo "FAILED (exit code $1) after $2 s"; fi; }
printf '\n== summary\n'
printf '%-38s  %s\n' set-up "$(verdict 0 $set_up_seconds)" \
  'units' "$(verdict $units $units_seconds)" \
  'interposing' "$(verdict $interposing $interposing_seconds)" \
  'operators, tools and whole processes' "$(verdict $processes $processes_seconds)"
[ $units = 0 ] && [ $interposing = 0 ] && [ $processes = 0 ]
