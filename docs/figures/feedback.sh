#!/bin/sh
# The README's figure: accuracy (as the policies act) against the number of rows with feedback, on the sample that ships with s2bl.
# Three seeds per point, each with its own mask. It takes about five minutes of CPU time.
# Run it as: sh docs/figures/feedback.sh
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
figures=$(dirname "$0")
s2bl make-logs --dataset sample --tau 10 --store-distribution --quiet -o "$work/logs.parquet"
for rho in 0.005 0.01 0.02 0.05 0.1 0.3 1; do
  for seed in 0 1 2; do
    masked="$work/masked-$rho-$seed.parquet"
    s2bl mask --rho "$rho" --seed "$seed" --quiet "$work/logs.parquet" -o "$masked"
    for method in dm-s2bl cce-s2bl wce-s2bl tips; do
      s2bl train --method "$method" --seed "$seed" --quiet "$masked" -o "$work/$method-$rho-$seed.safetensors"
    done
  done
done
s2bl evaluate "$work"/*.safetensors --logs "$work/logs.parquet" --metrics labels --quiet -o "$work/scores.parquet"
s2bl report "$work/scores.parquet" --metric accuracy --figure known-rows --plot "$figures/feedback.svg" --force
