#!/usr/bin/env bash
# The test command: installs what is missing, builds without a warning, runs the quick checks, unit and
# integration tests under AddressSanitizer and UndefinedBehaviorSanitizer, and at last every test. About
# 20 minutes on two cores. The last lines are ctest's own summary; what was skipped is told before it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# > 0)); then
  sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
  [[ $1 == -h || $1 == --help ]] && exit
  exit 2
fi
jobs=$(nproc)
say() { echo "test: $*"; }
# quietly LOG COMMAND…: its output only if it fails.
quietly() {
  local log=$1
  shift
  "$@" >>"$log" 2>&1 || {
    local code=$?
    tail -n 200 "$log" >&2
    say "failed: $*" >&2
    exit "$code"
  }
}

scripts/setup.sh --tests --torch

say "building"
mkdir -p build build-san
: >build/build.log
: >build-san/build.log
quietly build/build.log cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDLAUNCH_STATIC=ON -DDLAUNCH_TESTS=ON
quietly build/build.log ninja -C build -j "$jobs"

scripts/check.sh build

say "building with sanitizers"
quietly build-san/build.log cmake -S . -B build-san -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g" -DDLAUNCH_STATIC=OFF -DDLAUNCH_SANITIZE=address,undefined
quietly build-san/build.log ninja -C build-san -j "$jobs" dlaunch train unit_tests integration_tests worker_stub
say "unit and integration tests with sanitizers"
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
quietly build-san/build.log ctest --test-dir build-san --output-on-failure -j "$jobs" -L 'unit|integration'
grep -A 3 'tests passed' build-san/build.log

say "all tests"
# The summary is held back until the reasons of what was skipped are told.
code=0
ctest --test-dir build --output-on-failure -j "$jobs" >build/ctest.log 2>&1 &
running=$!
tail -n +1 -f --pid="$running" build/ctest.log | sed -u '/% tests passed/,$d' &
wait "$running" || code=$?
wait
awk '/^[0-9]+\/[0-9]+ Testing: / {name = $3}
     /^skipped: / {print "skipped " name ": " substr($0, 10)}
     /: Skipped$/ {getline; print "skipped " name ": " $0}' build/Testing/Temporary/LastTest.log
echo
sed -n '/% tests passed/,$p' build/ctest.log
exit "$code"
