#!/bin/sh
# Accuracy over λ on one mask, for docs/results.md: the sampled and the exact form of wce and kl. Nothing is selected, and
# every λ is scored. There are two logs of the same policy: one at τ = 10, and one drawn at a higher temperature.
# Run it as: sh bench/lambda_curves.sh FOLDER RHO [OPTION OF make-logs...]
# for example: sh bench/lambda_curves.sh runs/lambda-sample 0.2
#              sh bench/lambda_curves.sh runs/lambda-fmnist 0.02 --dataset fmnist --data-dir "$S2BL_DATA"
# Files that exist are kept. On the sample it takes a minute of CPU time, on FashionMNIST ten.
set -eu
work=$1 rho=$2
shift 2
mkdir -p "$work"
for tau in 10 14; do
  log="$work/tau$tau.parquet" masked="$work/tau$tau-masked.parquet"
  if [ $tau = 10 ]; then policy=--save-policy; else policy=--logging-policy; fi
  test -e "$log" ||
    s2bl make-logs "$@" --tau $tau --store-distribution $policy "$work/logging.safetensors" --threads 1 --quiet -o "$log"
  test -e "$masked" || s2bl mask --rho "$rho" --quiet "$log" -o "$masked"
  for method in wce-s2bl kl-s2bl; do
    for form in sampled exact; do
      policies="$work/tau$tau-$method-$form"
      test -e "$policies-scores.parquet" || {
        s2bl train --method $method --reg-form $form --lam 0.001,0.01,0.1,1,10,100 --threads 1 --quiet --force "$masked" \
          -o "$policies.safetensors"
        s2bl evaluate "$policies"-*.safetensors --logs "$log" --metrics labels --quiet -o "$policies-scores.parquet"
      }
    done
  done
done
