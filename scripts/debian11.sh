#!/usr/bin/env bash
# Runs the static binary in a Debian 11 root, whose C library is older than ours, with the name-service
# modules that make a static binary abort if it asks the C library for a name. Needs root and debootstrap.
#
#   scripts/debian11.sh [BUILD]      BUILD: a built tree (default: build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build}
root=$(realpath -m "$build")/debian11

say() { echo "debian11: $*"; }
if [[ $(id -u) != 0 ]] || ! command -v debootstrap >/dev/null; then
  say "skipped: needs root and debootstrap (scripts/setup.sh --full)"
  exit
fi
if [[ ! -e $root/complete ]]; then
  say "making $root (about 100 MB to download)"
  rm -rf "$root"
  if ! debootstrap --variant=minbase --include=libnss-myhostname,libnss-mymachines bullseye "$root" >"$root.log" 2>&1; then
    tail -n 20 "$root.log"
    say "skipped: debootstrap failed, see above"
    exit
  fi
  touch "$root/complete"
fi
install -m 755 "$build/bin/dlaunch" "$build/bin/worker_stub" "$root/usr/local/bin/"
printf '127.0.0.1 localhost meeting-point\n' >"$root/etc/hosts"
printf 'nameserver 127.0.0.1\n' >"$root/etc/resolv.conf"

inside() { timeout -k 5 60 unshare --mount --pid --fork --kill-child --root="$root" --mount-proc=/proc "$@"; }
failed=0
# expect CODE TEXT COMMAND…: its exit code, and that its output contains TEXT.
expect() {
  local code=0 wanted=$1 text=$2 output
  shift 2
  output=$(inside "$@" 2>&1) || code=$?
  if [[ $code != "$wanted" || $output != *"$text"* ]]; then
    say "FAILED: $* (exit code $code, not $wanted, or no '$text' in:)"
    printf '%s\n' "$output"
    failed=1
  fi
}

for hosts in 'files dns' 'files mymachines dns myhostname' 'files myhostname'; do
  sed -i "s/^hosts:.*/hosts: $hosts/" "$root/etc/nsswitch.conf"
  say "hosts: $hosts"
  expect 0 RANK=1 dlaunch --nproc_per_node=2 worker_stub env:RANK
  expect 3 'job failed: rank 1' dlaunch --nproc_per_node=2 worker_stub rank:1:exit:3 wait
  expect 0 MASTER_ADDR=meeting-point dlaunch --master_addr=meeting-point worker_stub env:MASTER_ADDR
  expect 124 "'nowhere.test'" dlaunch --nnodes=2 --node_rank=1 --master_addr=nowhere.test --join_timeout=8 worker_stub
  expect 0 'RANK=1' sh -c 'for i in 1 2; do
    dlaunch --rdzv_backend=c10d --rdzv_endpoint=meeting-point:29872 --nnodes=2 worker_stub env:RANK &
  done; wait'
  # A name that only a module knows: the root's own getent speaks for it.
  [[ $hosts != *myhostname* ]] || expect 0 RANK=0 dlaunch --master_addr="$(uname -n)" worker_stub env:RANK
done
((failed)) || say "all good"
exit "$failed"
