#!/usr/bin/env bash
# The check: types, lint, format, build and tests, those of GPU kernels included. Of the longest tests (test/longest.json)
# it takes one quarter, drawn anew each time, so that it ends within ten minutes; with --all every test, with files those.
# Brings a software Vulkan driver where the machine has no adapter and Chromium where it has no browser
# (scripts/setup-software-gpu.sh and scripts/setup-browser.sh say what they install), and does nothing of the kind where
# it has them.
set -euo pipefail
cd "$(dirname "$0")/.."
all=
if [[ ${1:-} == --all ]]; then
  all=1
  shift
elif [[ $# == 0 ]]; then
  export LLA_SIM_QUARTER=${LLA_SIM_QUARTER:-$((RANDOM % 4))}
fi
step() { printf '\n== %s\n' "$1"; }

step 'GPU adapter'
bash scripts/setup-software-gpu.sh
step 'browser'
bash scripts/setup-browser.sh
step 'build'
node scripts/build.mjs --checked
# Types, lint, format, schemas, the package and unused exports take one core for a minute: beside the tests, of which some wait.
found=$(mktemp)
{
  wrong=0
  npx oxlint || wrong=1
  npx prettier --check --log-level warn . || wrong=1
  node scripts/write-schema.mjs --check || wrong=1
  node scripts/check-package.mjs || wrong=1
  node scripts/house.mjs --check || wrong=1
  [[ -z $all ]] || npm run --silent servers -- --check || wrong=1
  exit "$wrong"
} >"$found" 2>&1 &
checks=$!
trap 'kill "$checks" 2>/dev/null || true; rm -f "$found"' EXIT
failed=0
step "tests${LLA_SIM_QUARTER:+ (LLA_SIM_QUARTER=$LLA_SIM_QUARTER; npm run test:all takes all)}"
LLA_SIM_REQUIRE_GPU=1 LLA_SIM_REQUIRE_BROWSER=1 npx vitest run "$@" || failed=1
step 'kernels beside those of the last commit'
bash scripts/bench-last-commit.sh || failed=1
step 'types, lint, format, schemas, package and unused exports'
wait "$checks" || failed=1
cat "$found"
exit "$failed"
