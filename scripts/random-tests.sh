#!/usr/bin/env bash
# Runs tests with many fresh seeds and names those that fail, with the seed that repeats each (LLA_SIM_SEED).
#   bash scripts/random-tests.sh 200 test/decoder/*.test.ts
# One process takes one file and 20 seeds, so that kernels are compiled once for them; files take turns, so that a run
# that is interrupted has tried all files with nearly as many seeds.
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=$1
shift
each=20
first=$(($(date +%s%N) / 1000000 % 2147483648))
failed=0
for ((done = 0; done < seeds; done += each)); do
  for file in "$@"; do
    # Seeds lie far apart (scripts/many-seeds.ts).
    from=$(((first + done * 1000003) % 2147483648))
    log=$(mktemp)
    NO_COLOR=1 LLA_SIM_SEEDS=$from+$each npx vitest run "$file" --reporter=verbose >"$log" 2>&1 || failed=1
    result=$(grep -E '^ +Tests ' "$log" || echo "no result: $(tail -n 1 "$log")")
    printf '%s, seeds %d to %d: %s\n' "$file" $((done + 1)) $((done + each)) "$result"
    grep -E '^ +× ' "$log" || true
    grep -A2 -E '^ FAIL |Error: ' "$log" || true
    rm "$log"
  done
done
exit "$failed"
