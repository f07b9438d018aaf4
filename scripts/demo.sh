#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds dlaunch and train, and trains on
# Fashion-MNIST with two workers. Exit 0 if the network is right on more than 80 % of the test images.
#
#   scripts/demo.sh [--pytorch]      --pytorch: a script that uses PyTorch's DistributedDataParallel instead
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
program=train
for argument; do
  case $argument in
    --pytorch) program=pytorch ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
say() { echo "demo: $*"; }

if [[ $program == train ]]; then
  scripts/setup.sh --demo
  targets=(dlaunch train)
else
  scripts/setup.sh --pytorch
  targets=(dlaunch)
fi

say "building"
# The tests need packages that the demo does not; a build folder that has them keeps them.
options=(-DCMAKE_BUILD_TYPE=Release -DDLAUNCH_STATIC=ON)
[[ -e build/CMakeCache.txt ]] || options+=(-DDLAUNCH_TESTS=OFF)
mkdir -p build
if ! { cmake -S . -B build -G Ninja "${options[@]}" && ninja -C build "${targets[@]}"; } >build/demo-build.log 2>&1; then
  cat build/demo-build.log >&2
  say "the build failed" >&2
  exit 1
fi

command=(build/bin/dlaunch --nproc_per_node=2 train --epochs 1)
if [[ $program == pytorch ]]; then
  command=(build/bin/dlaunch --nproc_per_node=2 scripts/examples/ddp_fashion_mnist.py --epochs 1)
  # The python3 in PATH need not be the one that Debian's PyTorch belongs to.
  has_torch() { "$1" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch") is None)' 2>/dev/null; }
  if [[ -z ${PYTHON_EXEC:-} ]] && ! has_torch python3; then
    export PYTHON_EXEC=/usr/bin/python3
  fi
fi
say "${command[*]}"
"${command[@]}" | tee build/demo.log || {
  say "failed" >&2
  exit 1
}
accuracy=$(sed -n 's/^test accuracy: //p' build/demo.log)
if [[ $accuracy =~ ^[01]\.[0-9]+$ ]] && awk "BEGIN {exit !($accuracy > 0.80)}"; then
  say "passed: $accuracy of the test images are right"
else
  say "failed: no accuracy above 0.80 (got '$accuracy')" >&2
  exit 1
fi
