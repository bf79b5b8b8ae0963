#!/usr/bin/env bash
# Installs a software Vulkan driver (Mesa lavapipe) that Dawn accepts, so that kernels run and are tested without a GPU.
# Does nothing where an adapter is found already. Run it from anywhere: scripts/setup-software-gpu.sh
#
# Dawn refuses Debian 12's own Mesa 22.3 ("shaderUniform*ArrayDynamicIndexing required"): there the driver comes from
# bookworm-backports, added as a copy of the machine's own Debian entry, so that it uses the same mirror and key.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BACKPORTS_FILE=/etc/apt/sources.list.d/lla-sim-backports
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"

fail() {
  echo "setup-software-gpu: $*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Prints the adapter's description, or fails.
adapter() {
  node --input-type=module -e '
    import { create } from "webgpu";
    const gpu = create([]);
    const adapter = await gpu.requestAdapter();
    if (!adapter) process.exit(1);
    console.log(adapter.info.description || adapter.info.device);
  ' 2>/dev/null
}

# Writes the backports entry in the form (deb822 or one-line) in which the machine's Debian entry is written.
add_backports() {
  local suite=$1 file
  if grep -rqsE "(^|[[:space:]])${suite}-backports([[:space:]]|\$)" /etc/apt/sources.list /etc/apt/sources.list.d --include='*.list' --include='*.sources'; then
    return
  fi
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] || continue
    # Paragraphs whose suites name the release itself: that leaves out paragraphs of security updates alone.
    local entry
    entry=$(awk -v suite="$suite" 'BEGIN { RS = ""; FS = "\n" } {
      keep = 0
      for (i = 1; i <= NF; i++) if ($i ~ /^Suites:/) { n = split($i, words, /[ \t]+/); for (j = 2; j <= n; j++) if (words[j] == suite) keep = 1 }
      if (!keep) next
      for (i = 1; i <= NF; i++) { if ($i ~ /^#/) continue; if ($i ~ /^Suites:/) $i = "Suites: " suite "-backports"; print $i }
      exit
    }' "$file")
    if [ -n "$entry" ]; then
      echo "adding ${suite}-backports, copied from $file"
      printf '%s\n' "$entry" | as_root tee "$BACKPORTS_FILE.sources" >/dev/null
      return
    fi
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -e "$file" ] || continue
    local line
    line=$(sed -nE "s/^(deb[[:space:]]+(\[[^]]*\][[:space:]]+)?[^[:space:]]+)[[:space:]]+${suite}[[:space:]]+(.*)\$/\1 ${suite}-backports \3/p" "$file" | head -n 1)
    if [ -n "$line" ]; then
      echo "adding ${suite}-backports, copied from $file"
      printf '%s\n' "$line" | as_root tee "$BACKPORTS_FILE.list" >/dev/null
      return
    fi
  done
  fail "no apt source for the suite ${suite} found; add ${suite}-backports by hand and run this again"
}

command -v node >/dev/null || fail "needs Node.js 20.19 or later on the PATH"
[ -d node_modules/webgpu ] || fail "the package webgpu is not installed; run npm ci first"

if found=$(adapter); then
  echo "an adapter is there already: $found; nothing to do"
  exit 0
fi

[ -r /etc/os-release ] && command -v apt-get >/dev/null || fail "knows Debian and Ubuntu only; install Mesa 24 or later with lavapipe (mesa-vulkan-drivers) and the Vulkan loader by hand"
[ "$(id -u)" = 0 ] || command -v sudo >/dev/null || fail "needs root: run it as root or install sudo"
# shellcheck disable=SC1091
. /etc/os-release

packages=(mesa-vulkan-drivers libvulkan1)
target=()
if [ "${ID:-}" = debian ] && [ "${VERSION_ID:-0}" = 12 ]; then
  add_backports "$VERSION_CODENAME"
  target=(-t "${VERSION_CODENAME}-backports")
elif [ "${ID:-}" = debian ] && [ "${VERSION_ID:-0}" -lt 12 ] 2>/dev/null; then
  fail "Debian ${VERSION_ID} has no Mesa that Dawn accepts; Debian 12 or later is needed"
fi
echo "installing ${packages[*]} ${target[*]:+from ${target[1]} }with apt-get"
as_root apt-get update -q
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${target[@]}" "${packages[@]}"

found=$(adapter) || fail "installed ${packages[*]}, but Dawn still finds no adapter; is the installed Mesa older than 24?"
echo "ready: $found"
