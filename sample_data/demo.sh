#!/bin/sh
# The whole pipeline on the embedded sample: make-logs, mask, train, evaluate, report. Files are written to demo/.
# Each of the three seeds has its own mask and its own order of rows, so ± in the tables is over both.
set -eu
mkdir -p demo
run() { printf '\n$ s2bl %s\n' "$*"; s2bl "$@"; }

run make-logs --dataset sample --tau 10 --store-distribution --force -o demo/logs.parquet
for seed in 0 1 2; do
  run mask --rho 0.02 --seed "$seed" --force demo/logs.parquet -o "demo/masked-$seed.parquet"
  for method in auto wce-s2bl kl-s2bl tips; do
    run train --method "$method" --seed "$seed" --force "demo/masked-$seed.parquet" -o "demo/$method-$seed.safetensors"
  done
done
run evaluate demo/*.safetensors --logs demo/logs.parquet --metrics labels --force --quiet -o demo/scores.parquet
run report demo/scores.parquet --metric accuracy
run report demo/scores.parquet --metric argmax-accuracy
