#!/usr/bin/env bash
# Makes a fresh Debian or Ubuntu machine ready and builds Pleat: system packages where missing,
# build/venv with PyTorch, build/bin/pleat, build/lib/libpleat.so and the bridges beside it.
# A second run finds nothing to do and says so within seconds.
#
#   tools/setup.sh [demo] [test] [bench] [next]
#
#   demo   and the packages that draw the demo
#   test   and the packages of the tests
#   bench  and the models of the benchmarks
#   next   and build/venv-next with the newest PyTorch, and a bridge for it
#
#   PLEAT_TORCH_VERSION  MAJOR.MINOR of the PyTorch in build/venv (default 2.11)
#   PLEAT_BUILD_DIR      build folder (default build/ of the repository)
#   PLEAT_CMAKE_ARGS     more arguments for CMake
#   PLEAT_CUDA_ARCHITECTURES  what the CUDA kernels are built for (default: as before, at first 80;90;100)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly build=${PLEAT_BUILD_DIR:-$root/build}
readonly torch_version=${PLEAT_TORCH_VERSION:-2.11}
readonly next_torch_version=2.15

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- system packages ------------------------------------------------------------------------------

# Asks for what is used, not for package names: a compiler or CMake of the user's own is as good.
missing_packages() {
  local package probe
  while read -r package probe; do
    case $probe in
      /*) [ -e "$probe" ] ;;
      python:*) python3 -c "${probe#python:}" ;;
      *) command -v "$probe" ;;
    esac >/dev/null 2>&1 || printf '%s ' "$package"
  done <<'LIST'
g++ g++
cmake cmake
ninja-build ninja
ccache ccache
python3 python3
python3-venv python:import ensurepip, venv
python3-dev python:import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")
libgtest-dev /usr/include/gtest/gtest.h
libbenchmark-dev /usr/include/benchmark/benchmark.h
libcli11-dev /usr/include/CLI/CLI.hpp
libfmt-dev /usr/include/fmt/format.h
nlohmann-json3-dev /usr/include/nlohmann/json.hpp
libzstd-dev /usr/include/zstd.h
libeigen3-dev /usr/include/eigen3/Eigen/Core
libsimde-dev /usr/include/simde/simde-common.h
strace strace
LIST
}

# Optional: help2man makes man pages. It is installed only together with other packages.
readonly extra_packages=help2man

install_system_packages() {
  local missing as_root=()
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  command -v apt-get >/dev/null || fail "please install: $missing"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "no sudo here; as root: apt-get install $missing"
    as_root=(sudo)
  fi
  say "installing $missing"
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -q
  # shellcheck disable=SC2086
  "${as_root[@]}" apt-get install -q -y --no-install-recommends $missing
  "${as_root[@]}" apt-get install -q -y --no-install-recommends $extra_packages || say "no man pages: $extra_packages is missing"
}

# --- Python environments --------------------------------------------------------------------------

# The requirements of a group, one a line, for torch $2.
requirements() {
  local group=$1 torch=$2
  case $group in
    core) printf '%s\n' "torch==$torch.*" numpy ;;
    demo) printf '%s\n' matplotlib plotly ;;
    test) printf '%s\n' numpy matplotlib plotly pytest pytest-xdist expecttest psutil scikit-build-core \
            clang-format==14.0.6 perfetto ;;
    # torchvision 0.(15+n) is the one for torch 2.n
    bench) printf '%s\n' transformers "torchvision==0.$((${torch#*.} + 15)).*" torch_geometric \
             matplotlib scikit-learn psutil ;;
    next) printf '%s\n' "torch==$torch.*" numpy expecttest pytest psutil ;;
    *) fail "unknown group '$group': demo, test, bench or next" ;;
  esac
}

# Brings environment $1 to torch $2 and the groups $3... A stamp per group says what pip has done.
install_python_packages() {
  local environment=$1 torch=$2 group wanted stamp new=() changed=()
  shift 2
  if [ ! -x "$environment/bin/python" ] || ! "$environment/bin/python" -c '' 2>/dev/null; then
    say "creating $environment"
    python3 -m venv --clear "$environment"
  fi
  for group in "$@"; do
    wanted=$(requirements "$group" "$torch")
    stamp=$environment/.pleat-$group
    [ -e "$stamp" ] && [ "$(<"$stamp")" = "$wanted" ] && continue
    changed+=("$group")
    mapfile -t -O "${#new[@]}" new <<<"$wanted"
  done
  [ ${#new[@]} -gt 0 ] || return 0
  # Always with torch among them, so that no other package moves it to another version.
  # Byte code is made for what is imported only, a sixth of what pip would compile; torch's below.
  say "installing into $environment: ${new[*]}"
  "$environment/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile \
    "torch==$torch.*" "${new[@]}"
  "$environment/bin/python" -c 'import torch'
  for group in "${changed[@]}"; do
    requirements "$group" "$torch" >"$environment/.pleat-$group"
  done
}

# --- build ----------------------------------------------------------------------------------------

# A cache that another checkout, build folder or generator has left is of no use.
drop_foreign_cache() {
  local cache=$build/CMakeCache.txt generator=$1 value
  [ -e "$cache" ] || return 0
  for value in "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "CMAKE_CACHEFILE_DIR:INTERNAL=$build" \
               "CMAKE_GENERATOR:INTERNAL=$generator"; do
    grep -qxF "$value" "$cache" && continue
    say "starting a fresh CMake cache in $build"
    rm -rf "$cache" "$build/CMakeFiles" "$build/.pleat-configured"
    return 0
  done
}

# A value of the build folder's CMake cache; empty if there is no cache.
configured() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null || true; }

# CMake's arguments into $arguments; $@ before those of PLEAT_CMAKE_ARGS, the last of which win.
arguments=()
choose_arguments() {
  local generator="Unix Makefiles"
  command -v ninja >/dev/null && generator=Ninja
  drop_foreign_cache "$generator"
  arguments=(-G "$generator" -DCMAKE_BUILD_TYPE=Release -DPLEAT_CCACHE=ON "-DPLEAT_PYTHON=$build/venv/bin/python")
  [ -e "$build/venv-next/.pleat-next" ] &&
    arguments+=("-DPLEAT_EXTRA_TORCH_PYTHONS=$build/venv-next/bin/python")
  local architectures
  architectures=$(configured PLEAT_CUDA_ARCHITECTURES)
  arguments+=("-DPLEAT_CUDA_ARCHITECTURES=${PLEAT_CUDA_ARCHITECTURES:-${architectures:-80;90;100}}")
  # shellcheck disable=SC2206
  arguments+=("$@" ${PLEAT_CMAKE_ARGS:-})
}

# The first time, the libraries that need no PyTorch and the CUDA image compile while pip fetches it:
# half a set-up is waiting for one of the two otherwise. Whatever fails here fails again below, where it is seen.
early_build=
start_early_build() {
  [ ! -e "$build/.pleat-configured" ] && [ ! -e "$build/venv/.pleat-core" ] || return 0
  choose_arguments -DPLEAT_BUILD_BRIDGE=OFF -DPLEAT_BUILD_TESTS=OFF -DPLEAT_BUILD_BENCHMARKS=OFF
  cmake -S "$root" -B "$build" "${arguments[@]}" >"$build/early.log" 2>&1 || return 0
  say "compiling libraries and CUDA kernels meanwhile ($build/early.log)"
  set -m  # a process group of its own, to end it with all its children
  nice cmake --build "$build" --parallel "$(nproc)" >>"$build/early.log" 2>&1 </dev/null &
  early_build=$!
  set +m
  trap 'kill -- "-$early_build" 2>/dev/null && wait "$early_build" || true' EXIT
}
await_early_build() {
  [ -n "$early_build" ] || return 0
  kill -0 "$early_build" 2>/dev/null && say "waiting for what compiles ($build/early.log)"
  wait "$early_build" || true
  trap - EXIT
}

build_pleat() {
  local stamp=$build/.pleat-configured
  choose_arguments -DPLEAT_BUILD_BRIDGE=ON -DPLEAT_BUILD_TESTS=ON -DPLEAT_BUILD_BENCHMARKS=ON
  # The inputs of the configuration in addition to CMake's own files: its arguments, and which torch.
  local wanted
  wanted=$(printf '%s\n' "${arguments[@]}"; cat "$build"/venv*/.pleat-core "$build"/venv*/.pleat-next 2>/dev/null || true)
  # CMake keeps what it was told last, by whomever.
  local python
  python=$(printf '%s\n' "${arguments[@]}" | sed -nE 's/^-DPLEAT_PYTHON(:[A-Z]+)?=//p' | tail -n 1)
  if [ ! -e "$stamp" ] || [ "$(<"$stamp")" != "$wanted" ] ||
    [ "$(configured PLEAT_PYTHON)" != "$python" ]; then
    rm -f "$stamp"
    say "configuring $build"
    cmake -S "$root" -B "$build" "${arguments[@]}"
    printf '%s\n' "$wanted" >"$stamp"
  fi
  cmake --build "$build" --parallel "$(nproc)"
}

main() {
  local group groups=(core) with_next=false
  for group in "$@"; do
    case $group in
      -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; return ;;
    esac
    requirements "$group" "$torch_version" >/dev/null
    if [ "$group" = next ]; then with_next=true; else groups+=("$group"); fi
  done
  install_system_packages
  mkdir -p "$build"
  start_early_build
  install_python_packages "$build/venv" "$torch_version" "${groups[@]}"
  $with_next && install_python_packages "$build/venv-next" "$next_torch_version" next
  await_early_build
  build_pleat
  say "ready: $build/bin/pleat, $build/lib/libpleat.so, $build/venv/bin/python"
}

main "$@"
