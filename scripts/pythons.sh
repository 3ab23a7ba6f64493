#!/usr/bin/env bash
# Runs the tests that need no JVM, and a few that do, on the lowest and the highest Python of this machine that Lakeward supports.
#
#   scripts/pythons.sh [PYTEST-ARGUMENT…]
#
# Pythons are looked for on the PATH, in /usr/bin, in pyenv and among those of uv; LOWEST_PYTHON and HIGHEST_PYTHON
# name others. Each gets an environment of its own under .cache/pythons, as locked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly LOWEST_SUPPORTED=3.11.2 # Debian 12's
readonly HIGHEST_WANTED=3.13
# From a landing file to the mirror, through tasks in Python, once from the command line; and the archives of deployments.
readonly SMOKE=(tests/spark/test_rows.py tests/spark/test_cli.py tests/packaging)

say() { printf '%s\n' "$*" >&2; }
stop() { say "error: $*"; exit 1; }

main() {
  local uv found lowest highest
  uv=$(command -v .cache/uv/bin/uv uv | head -n 1) || stop "uv is missing: make setup-python"
  found=$(supported_pythons "$uv")
  lowest=${LOWEST_PYTHON:-$(awk 'NR == 1 { print $2 }' <<< "$found")}
  highest=${HIGHEST_PYTHON:-$(awk 'END { print $2 }' <<< "$found")}
  [[ -n $lowest ]] || stop "there is no Python $LOWEST_SUPPORTED or newer"
  at_least "$(version_of "$highest")" "$HIGHEST_WANTED" ||
    stop "the newest Python here is $(version_of "$highest"), wanted is $HIGHEST_WANTED or newer:" \
      "$uv python install $HIGHEST_WANTED, or set HIGHEST_PYTHON"
  test_on "$uv" "$lowest" "$@"
  test_on "$uv" "$highest" "$@"
}

# Lines of version and program, lowest first.
supported_pythons() {
  local uv=$1 program version
  { printf '%s\n' /usr/bin/python3* "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 \
      "$("$uv" python dir 2> /dev/null)"/*/bin/python3
    type -ap python3 python3.11 python3.12 python3.13 python3.14 || true; } |
    while read -r program; do
      if version=$(version_of "$program") && at_least "$version" "$LOWEST_SUPPORTED"; then
        printf '%s %s\n' "$version" "$program"
      fi
    done | sort --version-sort --key 1,1 --unique
}

# Fails for programs that are no CPython that is released.
version_of() {
  [[ $1 != *-config ]] && "$1" -c '
import platform, sys
print(platform.python_version())
sys.exit(sys.implementation.name != "cpython" or sys.version_info.releaselevel != "final")' 2> /dev/null
}

at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort --version-sort | head -n 1) == "$2" ]]; }

test_on() {
  local uv=$1 program=$2 version environment
  shift 2
  version=$(version_of "$program")
  environment=.cache/pythons/$version
  say "== Python $version ($program)"
  UV_PROJECT_ENVIRONMENT=$environment "$uv" sync --frozen --quiet --python "$program"
  "$environment/bin/pytest" tests/unit --dist loadfile --no-loadscope-reorder --numprocesses 2 "$@"
  "$environment/bin/pytest" "${SMOKE[@]}" "$@"
}

main "$@"
