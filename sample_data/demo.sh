#!/bin/sh
# The whole path on the embedded sample: make-logs, mask, train, evaluate, report. Files go to demo/.
set -eu
mkdir -p demo
run() { printf '\n$ s2bl %s\n' "$*"; s2bl "$@"; }

run make-logs --dataset sample --tau 10 --force -o demo/logs.parquet
run mask --rho 0.02 --force demo/logs.parquet -o demo/masked.parquet
for seed in 0 1 2; do
  run train --method wce-s2bl --seed "$seed" --force demo/masked.parquet -o "demo/wce-s2bl-$seed.safetensors"
  run train --method kl-s2bl --seed "$seed" --force demo/masked.parquet -o "demo/kl-s2bl-$seed.safetensors"
  run train --method tips --seed "$seed" --force demo/masked.parquet -o "demo/tips-$seed.safetensors"
done
run evaluate demo/*.safetensors --logs demo/logs.parquet --force -o demo/scores.parquet
run report demo/scores.parquet
