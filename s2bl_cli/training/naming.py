"""What the policies of a run are called."""

import os

from s2bl_cli.errors import SettingError
from s2bl_cli.training.settings import Combination, TrainSettings, plain

_SUFFIX = ".safetensors"


def targets_of(settings: TrainSettings, output: str | None, log_stem: str) -> list[str]:
    """A file a policy, in the order of `file_keys`. Without -o, names after the log; with a folder, in it."""
    parts = [_part(settings, seed, combination) for seed, combination in file_keys(settings)]
    if output is None or output.endswith(("/", os.sep)) or (len(parts) > 1 and os.path.isdir(output)):
        return [os.path.join(output or "", f"{log_stem}-{settings.name}-{part}{_SUFFIX}") for part in parts]
    if len(parts) == 1:
        return [output]
    if output == "-":
        raise SettingError(f"-o - is for one policy, but these settings train {len(parts)}: give a folder")
    stem = output.removesuffix(_SUFFIX)
    return [f"{stem}-{part}{_SUFFIX}" for part in parts]


def file_keys(settings: TrainSettings) -> list[tuple[int, Combination | None]]:
    """What is kept: each seed's every combination, or its chosen one (None: not known yet)."""
    if settings.select is not None:
        return [(seed, None) for seed in settings.seed_list]
    return [(seed, combination) for seed in settings.seed_list for combination in settings.combinations]


def _part(settings: TrainSettings, seed: int, combination: Combination | None) -> str:
    """`lam0.1-seed0`: the numbers that differ between the files."""
    words = []
    if combination is not None:
        for name in ("lam", "nu", "sharpen", "translation"):
            if len({getattr(other, name) for other in settings.combinations}) > 1:
                words.append(f"{name}{plain(getattr(combination, name))}")
    return "-".join([*words, f"seed{seed}"])
