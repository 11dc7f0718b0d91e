#!/usr/bin/env bash
# On a machine with an NVIDIA GPU and nvcc: builds the kernels and their check, nothing of torch, and
# runs it: payloads of every kernel against the CPU path byte for byte, speed beside a device-to-device
# copy, then the committed golden hashes.
# A few minutes, no internet.
#
#   tools/gpu_check.sh [FILE]     JSON goes to FILE (default build/gpu/gpu_check.json)
#
#   PLEAT_GPU_BUILD_DIR   build folder (default build/gpu)
#   PLEAT_CMAKE_ARGS      more arguments for CMake
#
# Exit code 0: all bytes agree; 1: not; 77: no GPU, no driver or no nvcc here.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLEAT_GPU_BUILD_DIR:-$root/build/gpu}
json=${1:-$build/gpu_check.json}

# shellcheck disable=SC2086
cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DPLEAT_GPU_CHECK_ONLY=ON ${PLEAT_CMAKE_ARGS:-}
cmake --build "$build" --target pleat_gpu_check compress_golden --parallel "$(nproc)"
status=0
"$build/bin/pleat_gpu_check" >"$json" || status=$?
cat "$json"
[ $status = 0 ] || exit $status
"$build/bin/compress_golden" --check "$root/tests/compress/golden.txt" --isa=cuda
