#!/usr/bin/env bash
# Installs what a clone lacks for a purpose. Quick when all is there.
#
#   scripts/bootstrap.sh [demo | check | test]     test is the default
#
#   demo    uv, Java, the package with its runtime dependencies; the jars of its lake are fetched by the demo itself
#   check   uv, the package with every extra, linters, the test runner, the site generator; no Java
#   test    what check has, Java, the jars of every kind of lake and of Cassandra, a browser
#
# All purposes share .venv. Only the full set of packages is synchronised exactly, so that a package which left the lock
# cannot hide a missing dependency; demo adds to whatever is installed and removes nothing.
#
# uv is this clone's own under .cache/uv if an earlier run installed it, else the one on the PATH; without either it is
# installed under .cache/uv, never into the system's Python.
# Debian's Python may lack both venv and pip; then the system package is installed, if this user may do that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly MINIMUM_JAVA=17
readonly MINIMUM_UV=0.8
readonly UV_REQUIREMENT="uv>=$MINIMUM_UV,<1"
readonly PRIVATE_UV=.cache/uv
readonly SYSTEM_CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

say() { printf '%s\n' "$*" >&2; }
stop() { say "error: $*"; exit 1; }

main() {
  local purpose=${1:-test} uv
  [[ $purpose =~ ^(demo|check|test)$ ]] || stop "unknown purpose $purpose: demo, check or test"
  uv=$(usable_uv) || { install_uv; uv=$(usable_uv) || stop "uv was installed into $PRIVATE_UV but does not run"; }
  [[ $purpose == check ]] || require_java
  case $purpose in
    demo) sync_packages "$uv" --no-default-groups --inexact ;;
    *) sync_packages "$uv" ;;
  esac
  [[ $purpose != test ]] || prepare_tests
}

# Fetched ahead, so that no test waits for the network.
prepare_tests() {
  .venv/bin/python -m lakeward.session.jars > /dev/null
  .venv/bin/python -m lakeward.demo.cassandra.server > /dev/null
  offer_browser
}

# --- uv -------------------------------------------------------------------------------------------------------

usable_uv() {
  local candidate version
  for candidate in "$PRIVATE_UV/bin/uv" uv; do
    # Run it: a shim may be on the PATH without a uv behind it.
    version=$("$candidate" --version 2> /dev/null | awk '{ print $2 }') || continue
    if [[ -n $version ]] && at_least "$version" "$MINIMUM_UV"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

install_uv() {
  local python
  python=$(usable_python)
  say "installing uv into $PRIVATE_UV"
  install_uv_with "$python" || { install_system_package pip && install_uv_with "$python"; } ||
    stop "cannot install uv: $python could not make a virtual environment nor run pip, or the package index is out of reach"
}

install_uv_with() {
  local python=$1
  rm -rf "$PRIVATE_UV"
  mkdir -p "$(dirname "$PRIVATE_UV")"
  if "$python" -c 'import ensurepip' 2> /dev/null && "$python" -m venv "$PRIVATE_UV" > /dev/null; then
    PIP_ROOT_USER_ACTION=ignore "$PRIVATE_UV/bin/python" -m pip install --quiet "$UV_REQUIREMENT" && return 0
  fi
  # --target leaves the system's Python alone, so that an externally managed one does not refuse.
  rm -rf "$PRIVATE_UV"
  "$python" -m pip --version > /dev/null 2>&1 &&
    PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --target "$PRIVATE_UV" "$UV_REQUIREMENT"
}

usable_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  stop "Lakeward needs Python 3.11 or newer; set PYTHON to one"
}

# sync_packages UV [OPTION…]
sync_packages() {
  local uv=$1
  shift
  # uv trusts a list of its own; a machine behind an inspecting proxy has its authority in the system's.
  if [[ -z ${SSL_CERT_FILE:-} && -r $SYSTEM_CERTIFICATES ]]; then
    export SSL_CERT_FILE=$SYSTEM_CERTIFICATES
  fi
  if [[ -x .venv/bin/python ]] && .venv/bin/python -c '' 2> /dev/null; then
    "$uv" sync --frozen --quiet "$@"
  else
    local python
    python=$(usable_python)
    say "installing Python packages into .venv"
    "$uv" sync --frozen --quiet --python "$python" "$@"
  fi
}

# --- Java -----------------------------------------------------------------------------------------------------

require_java() {
  java_is_new_enough && return 0
  say "Java $MINIMUM_JAVA or newer is not there"
  install_system_package java
  java_is_new_enough || stop "Java was installed, but $(java_program) is still older than $MINIMUM_JAVA;" \
    "set JAVA_HOME or run update-alternatives --config java"
}

java_program() { printf '%s\n' "${JAVA_HOME:+$JAVA_HOME/bin/}java"; }

java_is_new_enough() {
  local version
  version=$("$(java_program)" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || return 1
  [[ -n $version ]] && ((version >= MINIMUM_JAVA))
}

# --- a browser ------------------------------------------------------------------------------------------------

# Only tests of the pages that Lakeward writes need one; without it they are skipped and say so.
offer_browser() {
  { command -v chromium || command -v google-chrome; } > /dev/null && return 0
  (install_system_package browser) || say "tests in a browser will be skipped"
}

# --- system packages ------------------------------------------------------------------------------------------

install_system_package() {
  local need=$1 privileges packages package
  packages=$(awk -v need="$need" '$1 == need { $1 = ""; print }' scripts/system-packages.txt)
  privileges=$(privileged_prefix) ||
    stop "a system package is missing and this user may not install it." \
      "As root: apt-get install $(first_of "$packages")   (one of:$packages)"
  say "installing a system package for $need"
  $privileges apt-get update -qq >&2 || say "the package lists could not be refreshed; trying with those at hand"
  for package in $packages; do
    if $privileges env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2; then
      return 0
    fi
  done
  stop "apt-get could not install any of:$packages"
}

first_of() { awk '{ print $1 }' <<< "$1"; }

privileged_prefix() {
  command -v apt-get > /dev/null || return 1
  if [[ $(id -u) == 0 ]]; then
    return 0
  fi
  sudo -n true 2> /dev/null && printf 'sudo -n\n'
}

at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

main "$@"
