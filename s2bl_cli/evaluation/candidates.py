"""The policies to score: policy files, the logging policy, the uniform policy, and probabilities from other tools. Also
the columns of a score that come from their lineages: the method, its data and its settings."""

import hashlib
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from s2bl_cli.contract.acts import PLAIN, Act
from s2bl_cli.contract.atomic import STANDARD_STREAM
from s2bl_cli.contract.input_files import expand
from s2bl_cli.contract.lineage import Source
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy, NetworkSpec, read_policy
from s2bl_cli.contract.probabilities import ProbabilityFile, is_probability_file, open_probabilities
from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.contract.settings_text import data_settings, encode_settings, named_settings, train_settings
from s2bl_cli.errors import ContractError, InputFileError, SettingError, one_line
from s2bl_cli.evaluation.selection import SelectedRows
from s2bl_cli.evaluation.settings import LOGGING
from s2bl_cli.objectives.methods import AUTO, METHODS, method_name

UNIFORM = "uniform"  # draws every action with the same probability
NO_BASELINE = "none"  # no comparison
SUPERVISED = "supervised"  # the method of a policy that make-logs fitted to labels

_WORDS = (LOGGING, UNIFORM, STANDARD_STREAM)  # not file names

_PLACE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLACE_NUMBERS = ("tau", "rho", "known", "missing", "lam")  # numeric in tables


@dataclass(frozen=True)
class Candidate:
    """A policy to score. The logging and the uniform policy have neither `loaded` nor `probabilities`."""

    name: str
    loaded: LoadedPolicy | None = None
    probabilities: ProbabilityFile | None = None
    given_act: Act | None = None  # overrides how its file says it acts
    place: "GridPlace | None" = None  # for a policy from another tool

    @property
    def acts(self) -> Act:
        """How the policy acts. Probabilities from another tool are sampled from, unless specified otherwise."""
        return self.given_act or (PLAIN if self.loaded is None else self.loaded.policy.acts)

    @property
    def source(self) -> Source:
        """The policy as an input in a lineage. A policy given by a word has the word's digest: the command can be
        repeated."""
        file = self.loaded or self.probabilities
        if file is not None:
            return file.source
        word = UNIFORM if self.name == UNIFORM else LOGGING
        return Source("policy", hashlib.sha256(word.encode()).hexdigest(), word)

    def facts(self, log: Log, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Its columns in a score, with `more` settings. A policy without a policy file does not record how it was
        trained: its name is used as its method, and the log as its data."""
        if self.loaded is not None:
            return policy_facts(self.loaded, self.given_act, more)
        step = log.lineages[0]
        settings: dict[str, Any] = {"dataset": log.stem} if step is None else data_settings(step)
        if self is LOGGING_CANDIDATE:
            settings["model"] = settings.get("logs.logging_model")
        settings |= {**_act_settings(self.acts), **(more or {})}
        digest = None if self.probabilities is None else self.source.sha256
        place = self.place or GridPlace(None)
        method = place.method or self.name.removesuffix(".parquet")
        return _facts(self.name, digest, method, {**settings, **place.settings}, place.seed)


@dataclass(frozen=True)
class GridPlace:
    """The name and the grid position of a policy whose file has no lineage."""

    method: str | None
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # such as ρ, in the format of a score's settings


def parse_place(text: str) -> GridPlace:
    """`method=mine,rho=0.02,seed=0`, the value of `evaluate --as`."""
    values: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or not value or not _PLACE_NAME.fullmatch(name) or name in values:
            raise SettingError(
                f"--as must be NAME=VALUE with distinct names, such as method=mine,rho=0.02,seed=0, "
                f"found {one_line(text, 60)!r}"
            )
        values[name] = _number(value)
    method, seed = values.pop("method", None), values.pop("seed", None)
    if not isinstance(method, str) or method in (*METHODS, LOGGING_POLICY, UNIFORM, SUPERVISED):
        raise SettingError(
            f"--as needs a method with a name of its own, such as method=mine, found {one_line(method, 40)}"
        )
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise SettingError(f"--as: seed must be a whole number of 0 or more, found {one_line(seed, 40)}")
    wrong = [name for name in _PLACE_NUMBERS if isinstance(values.get(name, 0), str)]
    if wrong:
        raise SettingError(f"--as: {wrong[0]} must be a number, found {one_line(values[wrong[0]], 40)!r}")
    return GridPlace(method, seed, values)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if math.isfinite(number) and abs(number) < 1 << 62:
            return number
    return text


LOGGING_CANDIDATE = Candidate(LOGGING_POLICY)
UNIFORM_CANDIDATE = Candidate(UNIFORM)


@contextmanager
def open_candidates(
    names: Sequence[str], act: Act | None = None, compare_to: str = LOGGING, place: GridPlace | None = None
) -> Iterator[tuple[list[Candidate], Candidate | None]]:
    """The policies by name, each once, with the logging policy last, whether or not it was named; and the policy that
    the others are compared with, which is scored even if it was not named.

    `act`: overrides how policy files act. `place`: the grid position of the only file of probabilities.
    """
    paths = [path for name in names for path in _paths(name)]
    baseline = _baseline_path(compare_to, paths)
    paths = [path for path in _without_repetitions([*paths, *baseline]) if path != LOGGING]
    with ExitStack() as stack:
        files = [path for path in paths if path not in _WORDS]
        shown = dict(zip(files, _distinguishing_names(files), strict=True))
        candidates = {path: _candidate(path, shown.get(path, path), act, stack) for path in paths}
        if place is not None:
            others = [path for path, candidate in candidates.items() if candidate.probabilities is not None]
            if len(others) != 1:
                raise SettingError(f"--as is for one file of action probabilities, found {len(others)}: give one")
            candidates[others[0]] = replace(candidates[others[0]], place=place)
        candidates[LOGGING] = LOGGING_CANDIDATE
        yield list(candidates.values()), candidates[baseline[0]] if baseline else None


def _paths(name: str) -> list[str]:
    """The files in a folder or glob. Words and - are returned unchanged."""
    if name in _WORDS:
        return [name]
    if os.path.isdir(name) and not any(Path(name).rglob("*.safetensors")) and any(Path(name).rglob("*.parquet")):
        raise InputFileError(
            f"{one_line(name)} is a folder without policies (*.safetensors), but with Parquet files: give logs with "
            f"--logs, and files of action probabilities by their names"
        )
    return expand(name, "*.safetensors")


def _baseline_path(compare_to: str, paths: Sequence[str]) -> list[str]:
    """The path of the baseline, spelled as in `paths` if it is one of them; none for `none`."""
    if compare_to == NO_BASELINE:
        return []
    same = [path for path in paths if path not in _WORDS and _is_same(path, compare_to)]
    return same[:1] or [compare_to]


def _is_same(path: str, other: str) -> bool:
    return path == other or (os.path.exists(other) and os.path.realpath(path) == os.path.realpath(other))


def _without_repetitions(paths: Sequence[str]) -> list[str]:
    by_file = {path if path in _WORDS else os.path.realpath(path): path for path in reversed(paths)}
    return [path for path in dict.fromkeys(paths) if path in by_file.values()]


def _distinguishing_names(paths: Sequence[str]) -> list[str]:
    """The file names, with as many parent folders as needed to distinguish files with the same name."""
    parts = [Path(os.path.realpath(path)).parts for path in paths]
    names = []
    for own in parts:
        others = [other for other in parts if other is not own]
        depth = next(n for n in range(1, len(own) + 1) if all(other[-n:] != own[-n:] for other in others))
        names.append(one_line("/".join(own[-depth:]), 255))
    return names


def _candidate(path: str, name: str, act: Act | None, stack: ExitStack) -> Candidate:
    """`name`: used in its scores."""
    if path == UNIFORM:
        return UNIFORM_CANDIDATE
    if is_probability_file(path):
        return Candidate(name, probabilities=stack.enter_context(open_probabilities(path)), given_act=act)
    loaded = read_policy(path)
    return of_policy(loaded if path == STANDARD_STREAM else replace(loaded, name=name), act)


def of_policy(loaded: LoadedPolicy, act: Act | None = None) -> Candidate:
    return Candidate(loaded.name, loaded, given_act=act)


def recorded_baseline(baseline: Candidate | None) -> str:
    """The baseline in a lineage: a word, or the digest of the policy file, which is one of the inputs."""
    if baseline is None:
        return NO_BASELINE
    file = baseline.loaded or baseline.probabilities
    return baseline.source.sha256 if file is not None else str(baseline.source.name)


def check_fit(candidates: Sequence[Candidate], log: Log, rows: SelectedRows) -> None:
    """Reject policies for other actions or contexts, and probabilities that do not match the log's rows."""
    for candidate in candidates:
        if candidate.loaded is not None:
            mismatch = candidate.loaded.policy.misfit(
                log.spec.actions, log.spec.context, log.spec.action_names, "the log's"
            )
            if mismatch is not None:
                remedy = _remedy(candidate.loaded.policy.network, log)
                raise ContractError(f"{candidate.name} does not fit {log.name}: {mismatch}; {remedy}")
        if (file := candidate.probabilities) is not None and file.rows not in (rows.sample.rows, len(rows.mask)):
            raise ContractError(
                f"{file.name} does not fit {log.name}: it has {file.rows:,} rows, but {rows.sample.rows:,} are scored "
                f"(split {rows.split}) of {len(rows.mask):,}; give one row of probabilities "
                f"per row of the log, in its order"
            )


def _remedy(network: NetworkSpec, log: Log) -> str:
    """What to type if a policy does not fit a log."""
    if network.actions > log.spec.actions:
        return f"if some actions were never logged, pass --actions {network.actions}"
    if network.actions < log.spec.actions:
        return f"train the policy again with --actions {log.spec.actions}"
    has_feature_columns = log.lineages[0] is None and bool(log.spec.context.names)
    if has_feature_columns and network.context.names and not network.context.fits(log.spec.context):
        return f"pass --context-columns {shlex.quote(one_line(','.join(network.context.names), 400))}"
    return "evaluate a policy on logs of the kind it was trained on"


def policy_facts(
    loaded: LoadedPolicy, given_act: Act | None = None, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The facts in a policy file: the data and settings of its training, and how the policy acts, as given or as
    stored."""
    policy, step = loaded.policy, loaded.policy.lineage
    rows, known, model = policy.training_rows, policy.training_known, policy.network.model
    sizes = {"rho": round(known / rows, 6), "known": known, "missing": rows - known} if rows else {}
    trained = train_settings(step) if step.command == "train" else {}
    settings = {
        **trained,
        **named_settings(policy.asked, "asked."),
        **data_settings(step),
        **sizes,
        "model": model,
        **_act_settings(given_act or policy.acts),
        **({} if given_act is None else {"asked.act": None}),  # the choice of `train --act auto` is not what is scored
        **(more or {}),
    }
    method = AUTO if policy.asked.get("method") == AUTO else _method(trained, model)
    return _facts(loaded.name, loaded.source.sha256, method, settings, step.settings.get("seed"))


def _act_settings(act: Act) -> dict[str, Any]:
    """A softmax at temperature 1 has no setting, as in scores from before policies stored how they act."""
    return {"act": None if act.is_plain else act.text}


def _facts(policy: str, sha256: str | None, method: str, settings: dict[str, Any], seed: Any = None) -> dict[str, Any]:
    return {
        "policy": policy,
        "policy_sha256": sha256,
        "method": method,
        "seed": seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        "settings": encode_settings(settings),
    }


def _method(trained: dict[str, Any], model: str) -> str:
    risk, reg, reg_rows = trained.get("risk"), trained.get("reg"), trained.get("reg_rows", "all")
    named = method_name(risk, reg, reg_rows, deep=model.startswith("resnet")) if risk and reg else SUPERVISED
    return str(trained.get("method", named))
