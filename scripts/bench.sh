#!/usr/bin/env bash
# Measures the Release build in build/ (or $DLAUNCH_BIN) beside its peers, in alternation, and fails if
# a target is missed.
#
#   scripts/bench.sh launch [RUNS]     starting and ending 8 processes; memory while they run
#   scripts/bench.sh store             the key-value store under 8, 64 and 256 clients
#   scripts/bench.sh train             training on CPUs, 1 and 2 ranks, beside PyTorch; memory per rank
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=${DLAUNCH_BIN:-build/bin}
[[ -x $bin/dlaunch ]] || {
  echo "bench: no $bin/dlaunch; build it: cmake -S . -B build -G Ninja && ninja -C build" >&2
  exit 1
}
case ${1:-} in
  launch) exec python3 tests/bench/launch.py "$bin" "${@:2}" ;;
  store) exec python3 tests/bench/store.py "$bin" "${@:2}" ;;
  train) exec python3 tests/bench/train.py "$bin" "${@:2}" ;;
  *)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
