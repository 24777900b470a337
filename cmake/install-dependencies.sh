#!/usr/bin/env bash
# Installs what building and testing Stepgraph needs and this machine lacks, from Debian's packages.
#
#   cmake/install-dependencies.sh [--check|--tests]
#
# --tests, and CI=true: as well the shells and linters that tests of completions, manual pages and layout use, and the
# linker that is quick with the fuzzers.
# As root it installs; otherwise, or with --check, it says what is missing and how to get it (exit 5).
# Optional tools (ninja, ccache, clang for the fuzzers) are installed with the rest; nothing fails without them.
set -eu

required=(
  "g++:g++" "cmake:cmake" "make:make" "git:git" "python3:python3" "flatc:flatbuffers-compiler"
  "/usr/include/flatbuffers/flatbuffers.h:libflatbuffers-dev"
  "/usr/include/simdjson.h:libsimdjson-dev"
  "/usr/include/zlib.h:zlib1g-dev"
  "/usr/include/zip.h:libzip-dev"
  "/usr/include/yaml-cpp/yaml.h:libyaml-cpp-dev"
  "/usr/include/catch2/catch.hpp:catch2"
)
optional=( "ninja:ninja-build" "ccache:ccache" "clang++:clang" "/usr/include/libdeflate.h:libdeflate-dev"
           "/usr/include/dnnl.h:libdnnl-dev" "mpirun:openmpi-bin" "mpicxx:libopenmpi-dev" )
tests=( "zsh:zsh" "fish:fish" "mandoc:mandoc" "clang-format:clang-format" "file:file" "ld.lld:lld" )
check_only=${1:-}
[ -z "${CI:-}" ] && [ "$check_only" != "--tests" ] || optional+=( "${tests[@]}" )

present() {   # a command on PATH, or a file
  case $1 in /*) [ -e "$1" ] ;; *) command -v "$1" >/dev/null 2>&1 ;; esac
}

missing_of() {
  for entry in "$@"; do present "${entry%%:*}" || echo "${entry#*:}"; done
}

missing=$(missing_of "${required[@]}")
wanted=$(missing_of "${optional[@]}")
[ -n "$missing$wanted" ] || exit 0
[ -n "$missing" ] || [ "$check_only" != "--check" ] || exit 0

if [ "$(id -u)" != 0 ] || [ "$check_only" = "--check" ]; then
  [ -n "$missing" ] || exit 0
  echo "stepgraph: missing packages:" $missing >&2
  echo "stepgraph: install them with: apt-get install" $missing $wanted >&2
  exit 5
fi

echo "stepgraph: installing:" $missing $wanted >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_packages() { apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1; }
{ apt-get update >>"$log" 2>&1 || true; }
if [ -n "$missing" ] && ! install_packages $missing; then
  tail -20 "$log" >&2
  echo "stepgraph: could not install:" $missing >&2
  exit 5
fi
if [ -n "$wanted" ] && ! install_packages $wanted; then
  echo "stepgraph: going on without the optional:" $wanted >&2
fi
still=$(missing_of "${required[@]}")
[ -z "$still" ] || { echo "stepgraph: still missing after installation:" $still >&2; exit 5; }
