#!/usr/bin/env bash
# A sweep as a Slurm array: each task simulates its share of the candidates. Submit with
#   sbatch --export=ALL,SCENARIO=scenario.yaml,RESULTS=results docs/cluster/slurm.sh
# then join the results: lla-sim simulate merge results
# A task that died runs again by its number alone (sbatch --array=3 needs TASKS=8, the number of all tasks): its file
# is replaced, so nothing counts twice.
#SBATCH --job-name=lla-sim
#SBATCH --array=1-8
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=01:00:00
set -euo pipefail
tasks=${TASKS:-$SLURM_ARRAY_TASK_COUNT}
mkdir -p "$RESULTS"
lla-sim simulate "$SCENARIO" --find-rate --cores 1 --quiet \
  --shard "$SLURM_ARRAY_TASK_ID/$tasks" --format json --output "$RESULTS/shard-$SLURM_ARRAY_TASK_ID.json"
