#!/usr/bin/env bash
# Sets up, then runs all tests: ctest (units), then pytest (tools, operators, whole processes). Arguments go to pytest.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLEAT_BUILD_DIR:-$root/build}
export PLEAT_BUILD_DIR=$build
export CI=${CI:-true}  # what is not built is a failure, not a skip

bash "$root/tools/setup.sh" test || exit 1

printf '\n== units (ctest)\n'
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)"
units=$?

run_pytest() {
  (cd "$root" && "$build/venv/bin/python" -m pytest "$@")
}

printf '\n== tools and operators (pytest)\n'
run_pytest tests --ignore=tests/whole_process "$@"
tools=$?

# Two files at a time: their scripts, torch's import above all, have one thread each.
printf '\n== whole processes (pytest)\n'
run_pytest tests/whole_process -n 2 --dist loadfile "$@"
whole=$?

# Arguments may leave one of the two without a test (exit code 5), not both.
none=5
[ $# -gt 0 ] && [ $tools = $none ] && [ $whole != $none ] && tools=0
[ $# -gt 0 ] && [ $whole = $none ] && [ $tools != $none ] && whole=0

verdict() { if [ "$1" = 0 ]; then echo passed; else echo "FAILED (exit code $1)"; fi; }
printf '\n== summary\nunits                %s\ntools and operators  %s\nwhole processes      %s\n' \
  "$(verdict $units)" "$(verdict $tools)" "$(verdict $whole)"
[ $units = 0 ] && [ $tools = 0 ] && [ $whole = 0 ]
