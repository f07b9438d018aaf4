#!/usr/bin/env bash
# Checks train on this machine's GPU, in eight minutes at most: its arithmetic beside the CPU's, that runs are
# repeatable, NCCL, several ranks on one GPU, and how fast it all is. Prints a table and writes
# $OUT/device_check.json (without OUT: build/device_check.json). Exit 0 if nothing failed, or if there is no GPU.
#
#   scripts/device_check.sh [STEP…]     the steps named, or all; --list shows them
#
# What lies in $DLAUNCH_BIN (a build folder's bin/) is used as it is; otherwise build/ is brought up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  --list) exec python3 tests/bench/device.py --list ;;
esac
bin=${DLAUNCH_BIN:-}
if [[ -z $bin ]]; then
  bin=build/bin
  mkdir -p build
  targets=(dlaunch train)
  # Without GoogleTest there are no unit checks of the device; all the rest is done.
  options=(-DCMAKE_BUILD_TYPE=Release)
  [[ -e /usr/include/gtest/gtest.h ]] || options+=(-DDLAUNCH_TESTS=OFF)
  if ! cmake -S . -B build -G Ninja "${options[@]}" >build/device-build.log 2>&1; then
    tail -20 build/device-build.log >&2
    echo "device check: the build could not be configured; carry a build and set DLAUNCH_BIN" >&2
    exit 1
  fi
  if grep -q '^build cuda_tests:' build/build.ninja; then targets+=(cuda_tests); fi
  if ! ninja -C build "${targets[@]}" >>build/device-build.log 2>&1; then
    tail -20 build/device-build.log >&2
    echo "device check: the build failed" >&2
    exit 1
  fi
fi
mkdir -p "${OUT:-build}"
exec python3 tests/bench/device.py "$bin" "${OUT:-build}/device_check.json" "$@"
