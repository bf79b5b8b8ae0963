#!/usr/bin/env bash
# The gate for kernels (action.yml): compares them with those of LLA_SIM_AGAINST, adds the table to the job's summary
# (GITHUB_STEP_SUMMARY; stdout where there is none), and ends with the exit code of the comparison: 4 on a regression.
set -euo pipefail
cd "$(dirname "$0")/.."

against=${LLA_SIM_AGAINST:?the revision to compare with is not given}
# A checkout of one commit lacks the other revision.
git cat-file -e "$against^{commit}" 2>/dev/null || git fetch --quiet --depth=1 origin "$against"
only=()
if [ -n "${LLA_SIM_KERNELS:-}" ]; then only=(--kernel "$LLA_SIM_KERNELS"); fi
table=$(mktemp)
trap 'rm -f "$table"' EXIT
code=0
node dist/bin/cli.js bench --against "$against" --budget "${LLA_SIM_BUDGET:-2m}" --threshold "${LLA_SIM_THRESHOLD:-5%}" \
  ${only[@]+"${only[@]}"} --format markdown --quiet >"$table" || code=$?
{
  printf '## Kernels against %s\n\n' "$against"
  cat "$table"
  case $code in
    0) printf '\nNo kernel became slower.\n' ;;
    4) printf '\n**A kernel became slower or wrong.**\n' ;;
    *) printf '\n**The comparison did not end (exit code %s): the log of this step says why.**\n' "$code" ;;
  esac
} >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
exit "$code"
