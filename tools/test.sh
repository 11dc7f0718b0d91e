#!/usr/bin/env bash
# Sets up, then runs all tests: ctest (units), then pytest (whole processes). Arguments go to pytest.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLEAT_BUILD_DIR:-$root/build}
export PLEAT_BUILD_DIR=$build
export CI=${CI:-true}  # what is not built is a failure, not a skip

bash "$root/tools/setup.sh" test || exit 1

printf '\n== units (ctest)\n'
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)"
units=$?

printf '\n== whole processes (pytest)\n'
(cd "$root" && "$build/venv/bin/python" -m pytest tests "$@")
processes=$?

verdict() { if [ "$1" = 0 ]; then echo passed; else echo "FAILED (exit code $1)"; fi; }
printf '\n== summary\nunits            %s\nwhole processes  %s\n' "$(verdict $units)" "$(verdict $processes)"
[ $units = 0 ] && [ $processes = 0 ]
