"""The plan of a sweep: the grid as jobs, each of which is one s2bl command, and as tasks, the jobs of one process.

    logs/fmnist-tau10.parquet                                 make-logs, once for all ρ, methods and seeds
    masked/fmnist-tau10-rho0.02.parquet                       mask; of one seed, a smaller ρ keeps a subset of the rows
    policies/fmnist-tau10-rho0.02-linear-wce-s2bl-seed0.…     train, all seeds and hyperparameters together
    scores/fmnist-tau10-rho0.02-linear-wce-s2bl.parquet       evaluate

A cell of the grid is a train and an evaluate job in one process. Words of a job that begin with `@/` are files in the
folder of the sweep. The digest of a job covers its words and the digests of the jobs that it needs, but nothing that
depends on the machine, so it identifies the content of the outputs.
"""

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s2bl_cli import __version__
from s2bl_cli.contract.input_files import open_input
from s2bl_cli.datasets.settings import TABLE, DatasetSettings
from s2bl_cli.errors import SettingError, one_line
from s2bl_cli.settings import flag, number_text, numbers_in
from s2bl_cli.sweeping.settings import SweepRunSettings, SweepSettings
from s2bl_cli.training.settings import TrainSettings

_IN_FOLDER = "@/"
_WITHOUT_TAU = ("kuairec",)  # its log is drawn with random scores


@dataclass(frozen=True)
class Job:
    """One command. Its name is the name of its record, and of its output without seed and suffix."""

    name: str
    words: tuple[str, ...]
    outputs: tuple[str, ...]  # relative to the folder
    needs: tuple[str, ...]  # names of jobs whose outputs it reads
    digest: str
    data_words: tuple[str, ...] = ()  # where the data is on this machine
    run_words: tuple[str, ...] = ()  # options of this run that do not change the outputs, such as --threads

    @property
    def stage(self) -> str:
        return self.words[0]

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint of an unfinished training."""
        return f"{self.outputs[0].removesuffix('.safetensors')}.checkpoint" if self.stage == "train" else None

    def command(self, folder: str) -> list[str]:
        """All words, for a sweep in this folder."""
        return [*self._words(folder), *self.run_words]

    def text(self, folder: str) -> str:
        """The command to rerun it by hand."""
        return shlex.join(["s2bl", *self._words(folder)])

    def _words(self, folder: str) -> list[str]:
        words = (*self.words, *self.data_words)
        return [os.path.join(folder, word[2:]) if word.startswith(_IN_FOLDER) else word for word in words]


@dataclass(frozen=True)
class Task:
    """Jobs that run in one process, one after the other."""

    name: str
    jobs: tuple[Job, ...]

    @property
    def needs(self) -> set[str]:
        return {name for job in self.jobs for name in job.needs} - {job.name for job in self.jobs}

    @property
    def is_cell(self) -> bool:
        return len(self.jobs) > 1


@dataclass(frozen=True)
class Plan:
    """All tasks; each task comes after those that it needs."""

    tasks: tuple[Task, ...]

    @property
    def jobs(self) -> Iterator[Job]:
        return (job for task in self.tasks for job in task.jobs)


def make_plan(settings: SweepSettings, run: SweepRunSettings) -> Plan:
    plan = Plan(tuple(_Planner(settings, run).tasks()))
    names = Counter(job.name for job in plan.jobs)
    same = [name for name, count in names.items() if count > 1]
    if same:
        raise SettingError(f"--dataset has two files of one name, which would both make {same[0]}: rename one of them")
    return plan


@dataclass(frozen=True)
class _Planner:
    settings: SweepSettings
    run: SweepRunSettings

    def tasks(self) -> Iterator[Task]:
        masks = self._masks()
        for dataset in self.settings.datasets:
            for log in self._logs(dataset):
                yield Task(log.name, (log,))
                for words, suffix in masks:
                    mask = self._mask(log, words, suffix)
                    yield Task(mask.name, (mask,))
                    for model in self.settings.models:
                        for method in self.settings.method_list:
                            yield self._cell(dataset, log, mask, model, method)

    def _logs(self, dataset: str) -> Iterator[Job]:
        settings, data = self.settings, DatasetSettings(dataset=dataset)
        is_table = data.registered_name == TABLE
        path = os.path.abspath(dataset) if is_table else dataset
        content = {"table": _sha256(dataset)} if is_table else {}
        more = _split("make_logs_options", settings.make_logs_options)
        options = {"logging-model": settings.logging_model, "features": settings.features, "limit": settings.limit}
        limit = "" if settings.limit is None else f"-limit{settings.limit}"
        weights = {"weights": _absolute(self.run.weights)} if settings.features is not None else {}
        where = {"data-dir": _absolute(self.run.data_dir), "download": self.run.download or None, **weights}
        taus: Sequence[float | None] = [None] if dataset in _WITHOUT_TAU else list(numbers_in(settings.tau))
        for tau in taus:
            name = f"logs/{data.short_name}{'' if tau is None else f'-tau{tau:g}'}{limit}"
            text = None if tau is None else number_text(tau)
            yield _job(
                name,
                ["make-logs", *_flags({"dataset": path, "tau": text, **options}), *more],
                outputs=[f"{name}.parquet"],
                output=f"{name}.parquet",
                content={"dataset": data.recorded_name, **content},
                data=_flags(where),
                run=self._resources(),
            )

    def _masks(self) -> list[tuple[list[str], str]]:
        """The options of each mask, and the suffix that its name adds to that of the log."""
        settings = self.settings
        rows: list[tuple[dict[str, Any], str]]
        if settings.known is not None:
            counts = [int(number) for number in numbers_in(settings.missing or "0")]
            rows = [({"known": settings.known, "missing": count}, f"-known{settings.known}-missing{count}")
                    for count in counts]  # fmt: skip
        else:
            rows = [({"rho": number_text(rho)}, f"-rho{rho:g}") for rho in numbers_in(settings.rho)]
        seeds = [int(seed) for seed in numbers_in(settings.mask_seeds)]
        return [
            (_flags({**options, "seed": seed}), f"{suffix}-mask{seed}" if seed else suffix)
            for options, suffix in rows
            for seed in seeds
        ]

    def _mask(self, log: Job, words: Sequence[str], suffix: str) -> Job:
        name = f"masked/{_stem(log)}{suffix}"
        output = f"{name}.parquet"
        return _job(name, ["mask", *words, _in_folder(log.outputs[0])], outputs=[output], output=output, needs=[log])

    def _cell(self, dataset: str, log: Job, mask: Job, model: str, method: str) -> Task:
        settings, seeds = self.settings, self.settings.seed_list
        name = f"{_stem(mask)}-{model}-{method}"
        stem = f"policies/{name}"
        policies = [f"{stem}-seed{seed}.safetensors" for seed in seeds]
        train = _job(
            stem,
            [
                "train",
                *_flags({"method": method, "model": model, "seeds": ",".join(map(str, seeds))}),
                *self._search(method, model),
                *_split("train_options", settings.train_options),
                _in_folder(mask.outputs[0]),
            ],
            outputs=policies,
            # For a single policy, pass the whole name; for several, the part that they share.
            output=policies[0] if len(seeds) == 1 else f"{stem}.safetensors",
            needs=[mask],
            run=["--resume", *self._resources()],
        )
        evaluate = _job(
            f"scores/{name}",
            [
                "evaluate",
                *map(_in_folder, policies),
                *_flags({"logs": _in_folder(log.outputs[0]), "metrics": settings.metrics_of(dataset)}),
                *_split("evaluate_options", settings.evaluate_options),
            ],
            outputs=[f"scores/{name}.parquet"],
            output=f"scores/{name}.parquet",
            needs=[train, log],
            run=self._resources(),
        )
        return Task(name, (train, evaluate))

    def _search(self, method: str, model: str) -> list[str]:
        """The hyperparameters that the method has and, if they have several values, how one is selected."""
        settings, declared = self.settings, TrainSettings(method=method, model=model).declared
        given = {name: text for name, text in settings.hyperparameters.items() if name in declared}
        points = {name: _points(declared[name], text) for name, text in given.items()}
        is_searched = any(
            len(values) > 1 or not set(declared[name].searched).isdisjoint(values) for name, values in points.items()
        )
        how = {"select": settings.select, "select-on": settings.select_on, "holdout": settings.holdout,
               "folds": settings.folds}  # fmt: skip
        return [*_flags({flag(name)[2:]: text for name, text in given.items()}), *(_flags(how) if is_searched else [])]

    def _resources(self) -> list[str]:
        return ["--threads", str(self.run.threads), "--device", self.run.device]


def _points(declared: Any, text: str) -> tuple[float | str, ...]:
    if (fault := declared.fault(text)) is not None:
        raise SettingError(fault)
    points: tuple[float | str, ...] = declared.points(text)
    return points


def _job(
    name: str,
    words: Sequence[str],
    *,
    outputs: Sequence[str],
    output: str,
    needs: Sequence[Job] = (),
    content: Mapping[str, str] | None = None,
    data: Sequence[str] = (),
    run: Sequence[str] = (),
) -> Job:
    """`content` replaces a path in the digest with what it stands for."""
    words = (*words, "-o", _in_folder(output))
    identity = {
        "version": __version__,
        "words": [word for word in words if content is None or not os.path.isabs(word)],
        "content": content or {},
        "needs": [job.digest for job in needs],
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return Job(
        name=name,
        words=words,
        outputs=tuple(outputs),
        needs=tuple(job.name for job in needs),
        digest=digest,
        data_words=tuple(data),
        run_words=(*run, "--force", "--quiet"),
    )


def _stem(job: Job) -> str:
    return job.name.partition("/")[2]


def _in_folder(path: str) -> str:
    return _IN_FOLDER + path


def _absolute(path: str | None) -> str | None:
    """On a cluster, a cell may run in a different working directory."""
    return None if path is None else os.path.abspath(path)


def _sha256(path: str) -> str:
    with open_input(path) as file:
        return file.sha256()


def _flags(values: Mapping[str, Any]) -> list[str]:
    return [
        word
        for name, value in values.items()
        if value is not None
        for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])
    ]


def _split(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingError(
            f"{flag(name)} must be options as in a shell, found {one_line(text, 60)!r}: {error}"
        ) from error
