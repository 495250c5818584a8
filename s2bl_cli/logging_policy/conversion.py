"""`make-logs` from settings to file: load, compute features, fit, draw, write, and report what was done."""

import os
from dataclasses import dataclass
from typing import Any

import torch

from s2bl_cli.console import Console
from s2bl_cli.contract.atomic import LOG_FORMATS, POLICY_FORMATS, check_output
from s2bl_cli.contract.input_files import open_input
from s2bl_cli.contract.lineage import Source, step_of
from s2bl_cli.contract.policies import read_policy, write_policy
from s2bl_cli.datasets.interactions import InteractionData
from s2bl_cli.datasets.labelled import LabelledData
from s2bl_cli.datasets.limiting import limited
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
    policy: str | None  # for the fitted logging policy; None: do not save it
    force: bool

    def __post_init__(self) -> None:
        if self.policy is not None and os.path.realpath(self.policy) == os.path.realpath(self.log):
            raise SettingError("--save-policy and -o must name different files: the policy would overwrite the log")

    def check(self) -> None:
        """Fail now if an output could not be written at the end."""
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
    """Write the log, and the fitted policy if requested. Return the facts of the log."""
    given = None if settings.logging_policy is None else read_policy(settings.logging_policy)
    settings = settings if given is None else settings.with_tau_of(given.policy.lineage)
    cost = cost_of(settings)
    data = _load(data_settings, cost.columns)
    targets.check()  # after the inputs, so that their errors are reported first
    inputs: tuple[Source, ...] = () if given is None else (given.source,)
    dataset = _source(data_settings, data)
    if data_settings.limit is not None:
        if isinstance(data, InteractionData):
            raise SettingError(f"--limit does not apply to {data.name}, whose rows have no class: remove it")
        data = limited(data, data_settings.limit)
    if feature_settings.features is not None:
        feature_settings = feature_settings.resolved(device.type)
        data, weights = _with_features(data, data_settings, feature_settings, device, console)
        inputs += (weights,)
    inputs += (dataset,)
    for note in data.notes:
        console.say(note)
    for warning in data.warnings:
        console.warn(warning)
    if isinstance(data, InteractionData):
        _reject_fitting_options(data, settings, targets)
    else:
        requested = settings
        settings = requested.resolved(data_settings.dataset, images=len(data.context.shape) == 3, device=device.type)
        _report_cpu_defaults(requested, settings, console)
        cost.check(data)
    lineage = step_of("make-logs", _recorded(data_settings, feature_settings, settings), inputs)
    if isinstance(data, InteractionData):
        return write_interaction_log(data, data_settings.draws, settings, lineage, targets.log, force=targets.force)
    policy, fitted = logging_policy_for(data, settings, given, device, console.progress)
    if targets.policy is not None and fitted is None:
        raise SettingError("--save-policy needs a logging policy that is fitted in this run: remove --save-policy")
    facts = write_labelled_log(data, policy, settings, lineage, targets.log, force=targets.force)
    if targets.policy is not None and fitted is not None:
        write_policy(fitted.as_policy(lineage), targets.policy, force=targets.force)
        console.say(f"{targets.policy}: fitted logging policy, to use again with --logging-policy")
    facts.fitting_steps = None if fitted is None else fitting_steps(fitted.rows, settings)
    return facts


def _load(settings: DatasetSettings, cost_columns: frozenset[str]) -> Any:
    """Load the data. The columns that the cost of a table is computed from are not features."""
    load = DATASETS.load(settings.registered_name)
    return load(settings, cost_columns) if settings.registered_name == TABLE else load(settings)


def _with_features(
    data: Any, data_settings: DatasetSettings, settings: FeatureSettings, device: torch.device, console: Console
) -> tuple[LabelledData, Source]:
    if not isinstance(data, LabelledData):
        raise SettingError(f"--features needs a dataset of images, but {data.name} has none: remove --features")
    rows = len(data.train.label) + len(data.test.label)
    with console.progress(f"features of {settings.features}", rows, "images") as advance:
        return with_features(data, settings, cache_folder(), device, download=data_settings.download, advance=advance)


def _source(settings: DatasetSettings, data: Any) -> Source:
    """The whole dataset as an input in the lineage."""
    if settings.registered_name == TABLE:
        with open_input(settings.dataset) as file:
            return Source("table", file.sha256(), file.base_name, rows=data.rows)
    return Source("dataset", data.sha256(), settings.dataset, rows=data.rows)


def _recorded(data: DatasetSettings, features: FeatureSettings, settings: LoggingSettings) -> dict[str, Any]:
    """The settings for the lineage: the dataset by name, and its other settings only if they were changed."""
    return {**recorded_changes(data), "dataset": data.recorded_name, **recorded_changes(features), **recorded(settings)}


def _reject_fitting_options(data: InteractionData, settings: LoggingSettings, targets: Targets) -> None:
    changed = recorded_changes(settings).keys() - {"seed", "store-distribution"}
    if settings.tau == 1:  # the default
        changed -= {"tau"}
    if settings.logging_policy is not None:
        changed |= {"logging-policy"}
    if targets.policy is not None:
        changed |= {"save-policy"}
    if changed:
        raise SettingError(
            f"--{sorted(changed)[0]} does not apply to {data.name}, whose log is drawn with random scores "
            f"and not from a fitted policy: remove it"
        )


def _report_cpu_defaults(requested: LoggingSettings, resolved: LoggingSettings, console: Console) -> None:
    """Note that the defaults on a CPU are smaller than in the paper, and how to get the paper's."""
    if resolved.logging_model is None or not resolved.logging_model.startswith("resnet"):
        return
    if requested.width is None and resolved.width is not None and resolved.width < 64:
        console.say(
            f"no GPU: the logging policy is a {resolved.logging_model} of width {resolved.width}, fitted for "
            f"{resolved.epochs} epochs; the paper's width is 64 (--width 64)"
        )
