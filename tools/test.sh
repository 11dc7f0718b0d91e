#!/usr/bin/env bash
# Sets up, then runs all tests: ctest (units), then pytest (tools, operators, whole processes). Arguments go to pytest.
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

printf '\n== tools and operators (pytest)\n'
start=$SECONDS
run_pytest tests --ignore=tests/whole_process "$@"
tools=$?
tools_seconds=$((SECONDS - start))

# Two files at a time: their scripts, torch's import above all, have one thread each.
printf '\n== whole processes (pytest)\n'
start=$SECONDS
run_pytest tests/whole_process -n 2 --dist loadfile "$@"
whole=$?
whole_seconds=$((SECONDS - start))

# Arguments may leave one of the two without a test (exit code 5), not both.
none=5
[ $# -gt 0 ] && [ $tools = $none ] && [ $whole != $none ] && tools=0
[ $# -gt 0 ] && [ $whole = $none ] && [ $tools != $none ] && whole=0

verdict() { if [ "$1" = 0 ]; then echo "passed in $2 s"; else echo "FAILED (exit code $1) after $2 s"; fi; }
printf '\n== summary\nset-up               %s\nunits                %s\ntools and operators  %s\nwhole processes      %s\n' \
  "$(verdict 0 $set_up_seconds)" "$(verdict $units $units_seconds)" \
  "$(verdict $tools $tools_seconds)" "$(verdict $whole $whole_seconds)"
[ $units = 0 ] && [ $tools = 0 ] && [ $whole = 0 ]
