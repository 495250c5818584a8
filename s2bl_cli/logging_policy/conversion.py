"""`make-logs` from settings to file: load, take features, fit, draw, write, and say what was done."""

import os
from dataclasses import dataclass
from typing import Any

import torch

from s2bl_cli.console import Console
from s2bl_cli.contract.atomic import LOG_FORMATS, POLICY_FORMATS, check_output
from s2bl_cli.contract.input_files import open_input
from s2bl_cli.contract.lineage import Source, step_of
from s2bl_cli.contract.policies import LoadedPolicy, read_policy, write_policy
from s2bl_cli.datasets.interactions import InteractionData
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.settings import TABLE, DatasetSettings, cache_folder
from s2bl_cli.errors import SettingError
from s2bl_cli.features.extraction import with_features
from s2bl_cli.features.settings import FeatureSettings
from s2bl_cli.logging_policy.costs import cost_of
from s2bl_cli.logging_policy.facts import LogFacts
from s2bl_cli.logging_policy.fitting import fitting_steps
from s2bl_cli.logging_policy.make_logs import logging_policy_for, write_interaction_log, write_labelled_log
from s2bl_cli.logging_policy.settings import LoggingSettings
from s2bl_cli.registry import DATASETS
from s2bl_cli.settings import recorded, recorded_changes


@dataclass(frozen=True)
class Targets:
    """The files to write."""

    log: str
    policy: str | None  # for the fitted logging policy, where asked
    force: bool

    def __post_init__(self) -> None:
        if self.policy is not None and os.path.realpath(self.policy) == os.path.realpath(self.log):
            raise SettingError("--save-policy and -o name the same file: the policy would replace the log")

    def check(self) -> None:
        """Refuse what could not be put in place after the work."""
        check_output(self.log, force=self.force, formats=LOG_FORMATS)
        if self.policy is not None:
            check_output(self.policy, force=self.force, formats=POLICY_FORMATS)


def convert(
    data_settings: DatasetSettings,
    feature_settings: FeatureSettings,
    settings: LoggingSettings,
    device: torch.device,
    targets: Targets,
    console: Console,
) -> LogFacts:
    """Write the log, and the fitted policy where asked; the facts of the log."""
    given = None if settings.logging_policy is None else read_policy(settings.logging_policy)
    cost = cost_of(settings)
    data = _loaded(data_settings, cost.columns)
    targets.check()  # after the inputs: that an output exists already must not hide what is wrong with them
    inputs = _inputs(data_settings, given)
    if feature_settings.features is not None:
        feature_settings = feature_settings.resolved(device.type)
        data, weights = _with_features(data, data_settings, feature_settings, device, console)
        inputs += (weights,)
    for note in data.notes:
        console.say(note)
    for warning in data.warnings:
        console.warn(warning)
    if isinstance(data, InteractionData):
        _refuse_fitting(data, settings, targets)
    else:
        asked = settings
        settings = asked.resolved(data_settings.dataset, images=len(data.context.shape) == 3, device=device.type)
        _tell_scaled_down(asked, settings, console)
        cost.check(data)
    lineage = step_of("make-logs", _recorded(data_settings, feature_settings, settings), inputs)
    if isinstance(data, InteractionData):
        return write_interaction_log(data, data_settings.draws, settings, lineage, targets.log, force=targets.force)
    policy, fitted = logging_policy_for(data, settings, given, device, console.progress)
    if targets.policy is not None and fitted is None:
        raise SettingError("--save-policy has nothing to save: no logging policy was fitted here")
    facts = write_labelled_log(data, policy, settings, lineage, targets.log, force=targets.force)
    if targets.policy is not None and fitted is not None:
        write_policy(fitted.as_policy(lineage), targets.policy, force=targets.force)
        console.say(f"{targets.policy}: the fitted logging policy, for --logging-policy")
    facts.fitting_steps = None if fitted is None else fitting_steps(fitted.rows, settings)
    return facts


def _loaded(settings: DatasetSettings, cost_columns: frozenset[str]) -> Any:
    """The data; of a table, what its costs are computed from is no feature."""
    load = DATASETS.load(settings.registered_name)
    return load(settings, cost_columns) if settings.registered_name == TABLE else load(settings)


def _with_features(
    data: Any, data_settings: DatasetSettings, settings: FeatureSettings, device: torch.device, console: Console
) -> tuple[LabelledData, Source]:
    if not isinstance(data, LabelledData):
        raise SettingError(f"--features needs a data set of images, and {data.name} has none")
    rows = len(data.train.label) + len(data.test.label)
    with console.progress(f"features of {settings.features}", rows, "images") as advance:
        return with_features(data, settings, cache_folder(), device, download=data_settings.download, advance=advance)


def _inputs(settings: DatasetSettings, given: LoadedPolicy | None) -> tuple[Source, ...]:
    sources = [] if given is None else [given.source]
    if settings.registered_name == TABLE:
        with open_input(settings.dataset) as file:
            sources.append(Source("table", file.sha256(), file.base_name))
    return tuple(sources)


def _recorded(data: DatasetSettings, features: FeatureSettings, settings: LoggingSettings) -> dict[str, Any]:
    """What makes the log again: the dataset by name, and of the rest of the data's settings what was changed."""
    return {**recorded_changes(data), "dataset": data.recorded_name, **recorded_changes(features), **recorded(settings)}


def _refuse_fitting(data: InteractionData, settings: LoggingSettings, targets: Targets) -> None:
    changed = recorded_changes(settings).keys() - {"seed", "store-distribution"}
    if settings.logging_policy is not None:
        changed |= {"logging-policy"}
    if targets.policy is not None:
        changed |= {"save-policy"}
    if changed:
        raise SettingError(
            f"--{sorted(changed)[0]} has no meaning for {data.name}: its log is drawn by random scores, "
            f"no policy is fitted"
        )


def _tell_scaled_down(given: LoggingSettings, resolved: LoggingSettings, console: Console) -> None:
    """On a CPU the defaults are smaller than the paper's: say so, and how to get those."""
    if resolved.logging_model is None or not resolved.logging_model.startswith("resnet"):
        return
    if given.width is None and resolved.width is not None and resolved.width < 64:
        console.say(
            f"no GPU: a {resolved.logging_model} of width {resolved.width} and {resolved.epochs} epochs logs here; "
            f"the paper's has --width 64"
        )
