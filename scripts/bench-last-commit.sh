#!/usr/bin/env bash
# Compares a few kernels with those of the last commit, or, where no kernel has changed since, with those of the commit
# before it: a wrong result or a wrong hash fails, a slower time is only printed. Without such a commit it says so.
set -euo pipefail
cd "$(dirname "$0")/.."

before=HEAD
if git diff --quiet HEAD -- 'kernels/*.wgsl' 2>/dev/null; then before=HEAD~1; fi
if [ -z "$(git ls-tree --name-only "$before" ./kernels/ 2>/dev/null || true)" ]; then
  echo "nothing to compare with: this checkout has no git history of kernels/ (a clone of one commit, or no clone)"
  exit 0
fi
node dist/bin/cli.js bench --against "$before" --all --quick --budget 20s \
  --kernel attend,attend_block_absorbed,matmul,rmsnorm
