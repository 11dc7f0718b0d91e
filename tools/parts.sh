# Parts of a test run, to be sourced: runs them one after the other, and tells at the end what each has taken.
#
#   part NAME COMMAND...    runs it under a heading; its output is kept for the summary
#   choose_cuda_architectures BUILD DRAW   sets PLEAT_CUDA_ARCHITECTURES for set-up
#   summary TITLE           a line for each part; 1 if one failed or there was none
#
# CPU seconds are user and system time of all processes of a part (tools/count.py waits for orphaned ones).

part_names=() part_codes=() part_lines=()
declare -A part_last=()
part_folder=$(mktemp -d)
trap 'rm -rf "$part_folder"' EXIT

# User and system time of all children so far, in milliseconds, into $cpu_ms.
count_cpu() {
  local minutes seconds thousandths word
  LC_ALL=C times >"$part_folder/times"
  cpu_ms=0
  for word in $(tail -n 1 "$part_folder/times"); do
    IFS=ms. read -r minutes seconds thousandths <<<"$word"
    cpu_ms=$((cpu_ms + (10#$minutes * 60 + 10#$seconds) * 1000 + 10#$thousandths))
  done
}

# The architectures of the CUDA kernels, two thirds of a minute for each: in a first build one architecture,
# another one each day; else as it was built; all three where everything is drawn.
choose_cuda_architectures() {
  local build=$1 draw=$2 one=(80 90 100)
  [ -z "${PLEAT_CUDA_ARCHITECTURES:-}" ] || return 0
  if [ "$draw" = all ]; then
    export PLEAT_CUDA_ARCHITECTURES="80;90;100"
  elif ! grep -qs '^PLEAT_CUDA_ARCHITECTURES:' "$build/CMakeCache.txt"; then
    export PLEAT_CUDA_ARCHITECTURES=${one[$(date -u -d "$draw" +%s) / 86400 % 3]}
  fi
}

part() {
  local name=$1 log=$part_folder/log start=$SECONDS begin_ms counted=()
  shift
  [ ${#part_names[@]} = 0 ] || echo
  printf '== %s\n' "$name"
  command -v python3 >/dev/null && counted=(python3 "${BASH_SOURCE[0]%/*}/count.py")
  count_cpu
  begin_ms=$cpu_ms
  "${counted[@]}" "$@" 2>&1 | tee "$log"
  part_code=${PIPESTATUS[0]}
  count_cpu
  part_names+=("$name")
  part_codes+=("$part_code")
  part_lines+=("$(printf '%7s CPU s  %6s s' $(((cpu_ms - begin_ms + 500) / 1000)) $((SECONDS - start)))")
  # The summary lines of pytest and ctest.
  part_last[$name]=$(grep -E '^=+ .*(passed|failed|error|skipped|no tests ran).* in .*=+$|tests passed, .* out of ' "$log" | tail -n 1)
}

summary() {
  local i failed=0 verdict
  count_cpu
  printf '\n== %s: %s CPU s, %s s\n' "$1" $(((cpu_ms + 500) / 1000)) $SECONDS
  for i in "${!part_names[@]}"; do
    verdict=passed
    [ "${part_codes[i]}" = 0 ] || { verdict="FAILED (exit code ${part_codes[i]})"; failed=1; }
    printf '%-40s %s  %s\n' "${part_names[i]}" "${part_lines[i]}" "$verdict"
    [ -z "${part_last[${part_names[i]}]}" ] || printf '  %s\n' "${part_last[${part_names[i]}]}"
  done
  [ ${#part_names[@]} -gt 0 ] || failed=1
  return $failed
}
