#!/bin/sh
# Measures a GPU with the portable bundle (npm run pack:portable puts this beside its `run` as `measure`), most important first:
# what the adapter is, kernels checked and held against the ceilings, the calibration, predictions against real steps.
# Usage: lla-sim-portable/measure OUT_DIRECTORY [minutes of calibration, 9 unless given]
# Each part writes its own file and the log says how it ended; a part that fails does not keep the next from running.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: measure OUT_DIRECTORY [minutes]}
minutes=${2:-9}
mkdir -p "$out"
part() {
  name=$1
  shift
  "$here/run" "$@" > "$out/$name.log" 2>&1
  echo "$name: exit $?" | tee -a "$out/parts.txt"
}
part doctor doctor
part roofline bench --roofline --format json --budget 2m --output "$out/roofline.json"
part calibrate calibrate --budget "${minutes}m" --output "$out/calibration.json"
part validate validate --calibration "$out/calibration.json" --budget 5m --format json --output "$out/validate.json"
