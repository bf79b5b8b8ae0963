#!/usr/bin/env bash
# The whole check: types, lint, build, every test, GPU tests included. Brings a software Vulkan driver where the machine
# has no adapter (scripts/setup-software-gpu.sh says what it installs) and does nothing of the kind where it has one.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$1"; }

step 'GPU adapter'
bash scripts/setup-software-gpu.sh
step 'types'
npx tsc --noEmit -p .
step 'lint'
npx eslint .
step 'build'
npm run --silent build
step 'tests'
LLA_SIM_REQUIRE_GPU=1 npx vitest run "$@"
