#!/usr/bin/env bash
# Fuzzes every decoder and parser under the address and undefined-behaviour sanitizers, each for the given seconds (60):
# decoders of spans and blocks, of the library and of the CUDA kernels (on the CPU), and the parsers of options, profiles,
# traces and file names. It starts from the committed corpus: a folder of named seeds and an archive of found inputs for
# each target. New inputs and failures stay in build/fuzz. A failure becomes a named seed: copy it into the folder.
# Needs clang with its runtime (Debian: clang-14 libclang-rt-14-dev).
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
seconds=${1:-60}
build=${PLEAT_FUZZ_BUILD_DIR:-$root/build/fuzz}
compiler=${CXX:-}
if [ -z "$compiler" ]; then
  for name in clang++ clang++-19 clang++-16 clang++-15 clang++-14; do
    if command -v "$name" >/dev/null; then compiler=$name; break; fi
  done
fi
[ -n "$compiler" ] || { echo "fuzz: no clang++ here (apt-get install clang-14 libclang-rt-14-dev)" >&2; exit 1; }

cmake -S "$root" -B "$build" -G Ninja -DPLEAT_FUZZ=ON -DPLEAT_BUILD_BRIDGE=OFF -DPLEAT_BUILD_TESTS=OFF \
  -DPLEAT_BUILD_BENCHMARKS=OFF -DPLEAT_CCACHE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$compiler" >/dev/null || exit 1
cmake --build "$build" --target fuzzers || exit 1

failed=0
for shape in payload grouped framed packed block device_payload device_grouped device_framed device_packed options profile trace name; do
  printf '\n== %s, %s s\n' "$shape" "$seconds"
  committed=$root/tests/fuzz/corpus/${shape#device_}
  mkdir -p "$build/corpus/$shape" "$build/seeds/$shape"
  [ ! -d "$committed" ] || cp "$committed"/* "$build/seeds/$shape"
  [ ! -f "$committed.tar.gz" ] || tar -xzf "$committed.tar.gz" -C "$build/seeds/$shape"
  "$build/bin/fuzz_$shape" -max_total_time="$seconds" -max_len=4096 -artifact_prefix="$build/$shape-" \
    -print_final_stats=1 "$build/corpus/$shape" "$build/seeds/$shape" 2>&1 | tail -n 12
  [ "${PIPESTATUS[0]}" = 0 ] || { failed=1; echo "FAILED: see $build/$shape-*"; }
done
exit $failed
