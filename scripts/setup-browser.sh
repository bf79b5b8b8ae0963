#!/usr/bin/env bash
# Installs Chromium from the distribution, in which the pages of reports are tested. Does nothing where there is one already
# (LLA_SIM_CHROMIUM names another program). Run it from anywhere: scripts/setup-browser.sh
set -euo pipefail

fail() {
  echo "setup-browser: $*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

for browser in "${LLA_SIM_CHROMIUM:-}" /usr/bin/chromium /usr/bin/google-chrome; do
  if [ -n "$browser" ] && [ -x "$browser" ]; then
    echo "a browser is there already: $browser; nothing to do"
    exit 0
  fi
done

command -v apt-get >/dev/null || fail "knows Debian only; install Chromium by hand and name it with LLA_SIM_CHROMIUM"
[ "$(id -u)" = 0 ] || command -v sudo >/dev/null || fail "needs root: run it as root or install sudo"
echo "installing chromium with apt-get"
as_root apt-get update -q
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium
[ -x /usr/bin/chromium ] || fail "installed chromium, but /usr/bin/chromium is missing; name the program with LLA_SIM_CHROMIUM"
echo "ready: $(/usr/bin/chromium --version)"
