"""What is scored: policy files, the logging policy, the uniform one, and other tools' probabilities."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from s2bl_cli.contract.lineage import Source, Step
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.policies import LoadedPolicy, read_policy
from s2bl_cli.contract.probabilities import ProbabilityFile, is_probability_file, open_probabilities
from s2bl_cli.contract.scores import LOGGING_POLICY
from s2bl_cli.errors import ContractError
from s2bl_cli.evaluation.facts import UNIFORM, logging_facts, policy_facts, untrained_facts
from s2bl_cli.evaluation.selection import SelectedRows

LOGGING = "logging"  # as a policy's name on the command line


@dataclass(frozen=True)
class Candidate:
    """One policy to score, and its columns in the scores. Exactly one of the last two is there, or none for the logging
    and the uniform policy."""

    name: str
    facts: Callable[[Log], dict[str, Any]]
    loaded: LoadedPolicy | None = None
    probabilities: ProbabilityFile | None = None

    @property
    def source(self) -> Source:
        """As an input in a lineage. A policy that is a word has the word's digest: the command can be told again."""
        file = self.loaded or self.probabilities
        if file is not None:
            return file.source
        word = UNIFORM if self.name == UNIFORM else LOGGING
        return Source("policy", hashlib.sha256(word.encode()).hexdigest(), word)


LOGGING_CANDIDATE = Candidate(LOGGING_POLICY, logging_facts)
UNIFORM_CANDIDATE = Candidate(UNIFORM, lambda log: untrained_facts(UNIFORM, None, log))


@contextmanager
def open_candidates(names: Sequence[str]) -> Iterator[list[Candidate]]:
    """The policies by their names, each once, and the logging policy last, whether it was named or not."""
    with ExitStack() as stack:
        candidates = [_candidate(name, stack) for name in dict.fromkeys(names) if name != LOGGING]
        yield [*candidates, LOGGING_CANDIDATE]


def _candidate(name: str, stack: ExitStack) -> Candidate:
    if name == UNIFORM:
        return UNIFORM_CANDIDATE
    if is_probability_file(name):
        file = stack.enter_context(open_probabilities(name))
        return Candidate(file.name, lambda log: untrained_facts(file.name, file.source.sha256, log), probabilities=file)
    return of_policy(read_policy(name))


def of_policy(loaded: LoadedPolicy) -> Candidate:
    return Candidate(loaded.name, lambda log: policy_facts(loaded), loaded)


def check_fit(candidates: Sequence[Candidate], log: Log, rows: SelectedRows) -> None:
    """Refuse a policy for other actions or contexts, and probabilities that are not of the log's rows."""
    for candidate in candidates:
        if candidate.loaded is not None:
            spec = log.spec
            mismatch = candidate.loaded.policy.misfit(spec.actions, spec.context, spec.action_names, "the log's")
            if mismatch is not None:
                raise ContractError(
                    f"{candidate.name} does not fit {log.name}: {mismatch}; "
                    f"evaluate a policy on logs of the kind it was trained on"
                )
        file = candidate.probabilities
        if file is not None and file.rows not in (rows.sample.rows, len(rows.mask)):
            raise ContractError(
                f"{file.name} does not fit {log.name}: it has {file.rows:,} rows, but {rows.sample.rows:,} are scored "
                f"(split {rows.split}) of {len(rows.mask):,}; give one row of probabilities "
                f"per row of the log, in its order"
            )


def trained_on(candidate: Candidate, log: Log) -> bool:
    """Whether the policy was trained on this log's train rows, or on another copy of them (masked otherwise)."""
    if candidate.loaded is None:
        return False
    learned = set(_log_digests(candidate.loaded.policy.lineage))
    scored = {source.sha256 for source in log.sources}
    for step in log.lineages:
        scored |= set() if step is None else set(_log_digests(step))
    return bool(learned & scored)


def _log_digests(step: Step) -> Iterator[str]:
    for source in step.inputs:
        if source.role == "logs":
            yield source.sha256
        if source.step is not None:
            yield from _log_digests(source.step)
