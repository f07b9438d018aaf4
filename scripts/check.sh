#!/usr/bin/env bash
# Checks that are no tests. Without a flag those that take seconds; scripts/test.sh runs them.
#
#   scripts/check.sh [--full] [BUILD]      BUILD: a built tree, for the static binary (default: build)
#
#   --full    also what takes long, with packages of scripts/setup.sh --full:
#             a clang build, clang-tidy, ThreadSanitizer over unit and integration tests,
#             every fuzz target ($FUZZ_SECONDS each, 600 unless set), a restart of real PyTorch 20 times,
#             and the binary in a Debian 11 root
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

full=no
build=build
for argument; do
  case $argument in
    --full) full=yes ;;
    -*)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      [[ $argument == -h || $argument == --help ]] && exit
      exit 2
      ;;
    *) build=$argument ;;
  esac
done

failed=()
# check NAME COMMAND…: runs it and remembers whether it failed.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "check: $name: good"
  else
    echo "check: $name: FAILED"
    failed+=("$name")
  fi
}
skip() { echo "check: $1: skipped: $2"; }
# needs NAME PROGRAM: true if there is that program, else says that the check is skipped.
needs() {
  command -v "$2" >/dev/null && return
  skip "$1" "no $2 (scripts/setup.sh --full)"
  return 1
}
# Files that git knows or would take, so that build folders do not count; all files in an archive.
files() { git ls-files -co --exclude-standard -- "$@" 2>/dev/null || find . -path ./build -prune -o -name "$1" -print; }
jobs=$(nproc)

sources() { files '*.cpp' '*.hpp' | grep -v '^third_party/'; }
format() {
  local off
  off=$(sources | xargs clang-format-14 --dry-run -Werror 2>&1 | sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error: .*/\1/p' | sort -u)
  [[ -z $off ]] && return
  echo "not as .clang-format has it; to mend: clang-format-14 -i ${off//$'\n'/ }"
  return 1
}
shell_scripts() { files '*.sh' .ci/run | xargs shellcheck; }
python_files() { files '*.py' | xargs python3 -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]'; }

# A static binary that can look names or users up would load the image's own modules to do so.
static_binary() {
  local forbidden='^(getaddrinfo|getnameinfo|gethostby(name|addr)(2)?(_r)?|getpw(nam|uid|ent)(_r)?|getgr(nam|gid|ent)(_r)?)$'
  if nm "$build/bin/dlaunch" | awk '$2 ~ /[TtWw]/ {print $3}' | grep -E "$forbidden"; then
    echo "$build/bin/dlaunch contains what is named above"
    return 1
  fi
}
is_static() { ! readelf -lW "$1" 2>/dev/null | grep -q INTERP; }

needs format clang-format-14 && check format format
check "include direction" scripts/include_direction.py
needs shellcheck shellcheck && check shellcheck shell_scripts
check "python syntax" python_files
if [[ ! -x $build/bin/dlaunch ]]; then
  skip "static binary" "no $build/bin/dlaunch"
elif ! is_static "$build/bin/dlaunch"; then
  skip "static binary" "$build/bin/dlaunch is not static (-DDLAUNCH_STATIC=ON)"
else
  check "static binary" static_binary
fi

# configure FOLDER OPTION…: with clang.
configure() {
  local folder=$1
  shift
  mkdir -p "$folder"
  cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 "$@" >"$folder/configure.log" 2>&1 ||
    { cat "$folder/configure.log"; return 1; }
}

clang_build() {
  configure build-clang -DCMAKE_BUILD_TYPE=Debug -DDLAUNCH_STATIC=OFF && ninja -C build-clang -j "$jobs"
}
tidy() { sources | grep '\.cpp$' | grep -Ev '_fuzz\.cpp$|^src/asio\.cpp$' | xargs -P "$jobs" -n 4 clang-tidy-14 --quiet -p build-clang; }
thread_sanitizer() {
  configure build-tsan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDLAUNCH_SANITIZE=thread &&
    ninja -C build-tsan -j "$jobs" unit_tests integration_tests worker_stub &&
    TSAN_OPTIONS=halt_on_error=1 ctest --test-dir build-tsan --output-on-failure -L 'unit|integration'
}
fuzz() {
  local seconds=${FUZZ_SECONDS:-600} target name
  configure build-fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDLAUNCH_TESTS=OFF -DDLAUNCH_FUZZ=ON \
    -DDLAUNCH_SANITIZE=fuzzer-no-link,address,undefined || return 1
  for target in tests/fuzz/*_fuzz.cpp; do
    name=$(basename "$target" .cpp)
    ninja -C build-fuzz -j "$jobs" "$name" || return 1
    mkdir -p "build-fuzz/corpus/$name"
    echo "check: fuzzing $name for $seconds s"
    "build-fuzz/bin/$name" -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 \
      -artifact_prefix=build-fuzz/ "build-fuzz/corpus/$name" || return 1
  done
}
restarts() {
  local name
  for name in OnDebiansPyTorch OnTodaysPyTorch; do
    DLAUNCH_BIN=$(realpath "$build/bin") DLAUNCH_TEST_RESTARTS=20 python3 tests/run_one.py tests/interop/jobs_test.py \
      "$name.test_a_rank_that_fails_in_round_0_does_not_spoil_round_1"
    case $? in
      0) ;;
      77) skip "restarts $name" "see above" ;;
      *) return 1 ;;
    esac
  done
}

if [[ $full == yes ]]; then
  if needs "clang build" clang++-14; then
    check "clang build" clang_build
    needs clang-tidy clang-tidy-14 && check clang-tidy tidy
    check "thread sanitizer" thread_sanitizer
    check fuzzing fuzz
  fi
  if [[ -x $build/bin/dlaunch && -x $build/bin/worker_stub ]]; then
    check "restarts, 20 times" restarts
    check "Debian 11 root" scripts/debian11.sh "$build"
  else
    skip "restarts and Debian 11 root" "$build is not built with tests"
  fi
fi

if ((${#failed[@]})); then
  printf -v list '%s, ' "${failed[@]}"
  echo "check: failed: ${list%, }"
  exit 1
fi
echo "check: all good"
