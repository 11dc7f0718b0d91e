#!/usr/bin/env bash
# Sets up, then runs the demo. Arguments go to it: tools/demo.sh --help
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLEAT_BUILD_DIR:-$root/build}

bash "$root/tools/setup.sh" demo
exec "$build/venv/bin/python" "$root/tools/demo/demo.py" "$@"
