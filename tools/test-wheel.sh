#!/bin/sh
# Build the sdist and, from it, the wheel; install the wheel into an empty environment; run its commands there. make wheel
# calls it.
set -eu
checkout=$PWD
rm -rf dist .venv-wheel
.venv/bin/python -m hatchling build --target sdist
.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/s2bl-*.tar.gz
wheel=$(echo dist/s2bl-*.whl)
.venv/bin/python -m zipfile --list "$wheel" | grep -q 's2bl_cli/sample_data/fmnist-sample\.parquet' || {
    echo "$wheel: the sample s2bl_cli/sample_data/fmnist-sample.parquet is not in it: see pyproject.toml" >&2
    exit 1
}
sh tools/install.sh .venv-wheel constraints.txt "$wheel"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
PATH=$checkout/.venv-wheel/bin:$PATH
python -m pip check
python -c 'import s2bl_cli, sys; assert s2bl_cli.__file__.startswith(sys.prefix), s2bl_cli.__file__'
s2bl --version
s2bl make-logs --tau 10 --epochs 1 -o logs.parquet
s2bl mask --rho 0.2 logs.parquet -o - | s2bl train - --method wce-s2bl --epochs 1 -o policy.safetensors
s2bl evaluate policy.safetensors --logs logs.parquet -o scores.parquet
s2bl report scores.parquet | grep "WCE-S2BL"
echo "$wheel: installed and run"
