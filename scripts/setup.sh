#!/usr/bin/env bash
# Installs what a fresh Debian 12 machine lacks. Says first what it will install and how much that
# downloads; does nothing when nothing is missing.
#
#   scripts/setup.sh [--demo | --pytorch | --tests | --full] [--torch]
#
#   --demo    to build dlaunch and train, and run scripts/demo.sh
#   --pytorch to run scripts/demo.sh --pytorch: Debian's PyTorch as well
#   --tests   to run scripts/test.sh as well (the default)
#   --full    to run scripts/check.sh --full as well: clang, its tools, debootstrap
#   --torch   also PyTorch (the version in scripts/torch-version) for the tests against today's
#             release: a virtual environment of about 2.4 GB in ${XDG_CACHE_HOME:-~/.cache}/dlaunch.
#             The tests skip those parts where it is missing, so a failure here is no error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=(cmake ninja-build g++ ccache libboost1.81-dev libboost-filesystem1.81-dev libboost-system1.81-dev
  libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libc-ares-dev
  libgloo-dev libopenblas-dev zlib1g-dev libxxhash-dev)
demo=(dataset-fashion-mnist)
pytorch=(python3 python3-torch python3-numpy)
tests=(libgtest-dev libgmock-dev clang-format-14 python3-venv iproute2 iptables util-linux procps mpich shellcheck)
full=(clang-14 clang-tidy-14 libclang-rt-14-dev debootstrap)

say() { echo "setup: $*"; }
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

level=tests
torch=no
for argument; do
  case $argument in
    --demo | --pytorch | --tests | --full) level=${argument#--} ;;
    --torch) torch=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

wanted=("${build[@]}" "${demo[@]}")
[[ $level == demo ]] || wanted+=("${pytorch[@]}")
[[ $level != tests && $level != full ]] || wanted+=("${tests[@]}")
[[ $level != full ]] || wanted+=("${full[@]}")

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

install_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "this is no Debian system; install the likes of: ${wanted[*]}" >&2
    return 1
  fi
  local missing=() package
  for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    say "all ${#wanted[@]} packages for --$level are installed"
    return
  fi
  if [[ $(id -u) != 0 ]] && ! command -v sudo >/dev/null; then
    say "neither root nor sudo; as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  # Debian 12 carries two Boosts whose -dev packages exclude each other. The older one has to go, and
  # with it whatever needs it; apt lists that below.
  local old
  for old in libboost1.74-dev libboost-dev; do
    if installed "$old"; then
      say "$old is replaced: it cannot stay beside libboost1.81-dev"
      missing+=("$old-")
    fi
  done
  say "refreshing the package lists"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  local plan
  plan=$(apt-get --print-uris -qq -y --no-install-recommends install "${missing[@]}" |
    awk '/^'\''/ {files++; bytes += $3} END {printf "%d files, %.0f MB to download", files, bytes / 1e6}')
  say "installing ${missing[*]} ($plan)"
  local log
  log=$(mktemp)
  if as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 install "${missing[@]}" >"$log" 2>&1; then
    rm "$log"
    say "installed"
  else
    cat "$log" >&2
    rm "$log"
    return 1
  fi
}

# A virtual environment cannot be moved into place once it is made, so a marker says what is in it, whole.
install_torch() {
  local version folder packages
  version=$(<scripts/torch-version)
  packages=("torch==$version" numpy safetensors)
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/dlaunch/torch-$version
  mkdir -p "${folder%/*}"
  exec 9>"$folder.lock"
  flock 9
  if [[ -e $folder/complete && $(<"$folder/complete") == "${packages[*]}" ]]; then
    say "PyTorch $version is in $folder"
    return
  fi
  local has='import sys, torch; sys.exit(torch.__version__.split("+")[0] != sys.argv[1])'
  if ! "$folder/bin/python" -c "$has" "$version" 2>/dev/null; then
    say "making $folder with PyTorch $version: about 2.4 GB on disk, some minutes"
    rm -rf "$folder"
    /usr/bin/python3 -m venv "$folder" || return
  fi
  "$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" &&
    "$folder/bin/python" -c "$has" "$version" || return
  echo "${packages[*]}" > "$folder/complete"
  say "PyTorch $version is ready"
}

install_packages
if [[ $torch == yes ]]; then
  # In a shell of its own, so that no failure in it ends this script.
  ( install_torch ) || say "no PyTorch $(<scripts/torch-version): see above; the tests against it will be skipped" >&2
fi
