#!/usr/bin/env bash
# The whole check: types, lint, format, build, every test, GPU tests included. Brings a software Vulkan driver where the machine
# has no adapter and Chromium where it has no browser (scripts/setup-software-gpu.sh and scripts/setup-browser.sh say what
# they install), and does nothing of the kind where it has them.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$1"; }

step 'GPU adapter'
bash scripts/setup-software-gpu.sh
step 'browser'
bash scripts/setup-browser.sh
step 'types and lint; format and build'
# The first takes one core, the others together another.
found=$(mktemp)
node scripts/types-and-lint.mjs >"$found" 2>&1 &
checks=$!
failed=0
{ npx prettier --check --log-level warn . && node scripts/build.mjs --checked; } || failed=1
wait "$checks" || failed=1
cat "$found"
rm -f "$found"
[ "$failed" = 0 ] || exit 1
step 'tests'
LLA_SIM_REQUIRE_GPU=1 LLA_SIM_REQUIRE_BROWSER=1 npx vitest run "$@"
