#!/usr/bin/env bash
# On a machine with an NVIDIA GPU and nvcc: builds the kernels and their check, and runs it: payloads of
# every kernel against the CPU path byte for byte, speed beside a device-to-device copy, then the committed
# golden hashes; formulas that write over their gradient against themselves (tools/bench/gpu_gradients.py).
# Then trainings in plain torch, stock next to Pleat (tools/bench/gpu_training.py), and cost and gain of bits for
# each tensor (tools/bench/gpu_sensitivity.py), where a build of Pleat is:
# `bash tools/setup.sh test` makes one, and one for the same torch may be carried here. A few minutes, no internet.
#
#   tools/gpu_check.sh [FILE]     JSON goes to FILE (default build/gpu/gpu_check.json), that of the other steps
#                                 and a page to FILE's folder: gpu_gradients.json, gpu_training.json, gpu_training.md,
#                                 gpu_sensitivity.json
#
#   PLEAT_GPU_BUILD_DIR   build folder (default build/gpu)
#   PLEAT_GPU_BUILT       1: take its files as they are, for a folder carried from another machine
#   PLEAT_CMAKE_ARGS      more arguments for CMake
#   PLEAT_LIBRARY         the build's libpleat.so (default build/lib/libpleat.so)
#   PLEAT_TEST_PYTHON     the interpreter whose torch it is for (default build/venv/bin/python, else python3)
#
# Exit code 0: all bytes agree, and so do losses without loss; 1: not; 77: no GPU, no driver or no nvcc here. Then the
# trainings are tried on the simulated device of the tests, if that is built.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLEAT_GPU_BUILD_DIR:-$root/build/gpu}
json=${1:-$build/gpu_check.json}
library=${PLEAT_LIBRARY:-$root/build/lib/libpleat.so}
python=${PLEAT_TEST_PYTHON:-$root/build/venv/bin/python}
[ -x "$python" ] || python=python3

on_the_simulation() {
  local preload check
  preload=$(cat "$root"/build/lib/simulated_cuda/torch2.11/preload 2>/dev/null) || return 0
  [ -e "$library" ] || return 0
  echo "no GPU here: trying the trainings on the simulated device, which says nothing about times" >&2
  for check in gpu_training gpu_sensitivity; do
    LD_PRELOAD=$preload PYTHONPATH=$root/tests/simulated_cuda PLEAT_BUILD_DIR=$root/build "$python" \
      "$root/tools/bench/$check.py" --small --steps 3 --lib "$library" \
      --launcher "$root/tests/simulated_cuda/simulate.py" || return 1
  done
}

if [ "${PLEAT_GPU_BUILT:-0}" != 1 ]; then
  # shellcheck disable=SC2086
  cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DPLEAT_GPU_CHECK_ONLY=ON -DPLEAT_CCACHE=ON ${PLEAT_CMAKE_ARGS:-}
  cmake --build "$build" --target pleat_gpu_check compress_golden --parallel "$(nproc)"
fi
status=0
"$build/bin/pleat_gpu_check" >"$json" || status=$?
cat "$json"
if [ $status = 77 ]; then
  on_the_simulation || exit 1
fi
[ $status = 0 ] || exit $status
"$build/bin/compress_golden" --check "$root/tests/compress/golden.txt" --isa=cuda
folder=$(dirname "$json")
if "$python" -c 'import torch' 2>/dev/null; then
  "$python" "$root/tools/bench/gpu_gradients.py" --json "$folder/gpu_gradients.json" || [ $? = 77 ]
else
  echo "no torch in $python: gradients in place are not compared" >&2
fi
if [ -e "$library" ]; then
  "$python" "$root/tools/bench/gpu_training.py" --lib "$library" --json "$folder/gpu_training.json" \
    --page "$folder/gpu_training.md"
  "$python" "$root/tools/bench/gpu_sensitivity.py" --lib "$library" --json "$folder/gpu_sensitivity.json"
else
  echo "no build of Pleat at $library: the trainings are not measured" >&2
fi
