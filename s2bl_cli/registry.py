"""Name → object, by literal tables. A new dataset, model, risk, regulariser, metric or table is one file
and one line here; the command line's choices, the docs' tables and the tests' parametrisation follow.

Targets are strings, loaded on first use, so that listing names imports nothing heavy.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from s2bl_cli.errors import SettingError


@dataclass(frozen=True)
class Entry:
    """One line of a table: where the object lives, and what it is in a few words."""

    target: str
    summary: str


@dataclass(frozen=True)
class Registry:
    """A literal table of one kind of thing."""

    kind: str
    entries: dict[str, Entry]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.entries)

    def load(self, name: str) -> Any:
        """The object behind a name; an unknown name lists the known ones."""
        if name not in self.entries:
            known = ", ".join(self.entries)
            raise SettingError(f"unknown {self.kind} {name!r}: it must be one of {known}")
        module, attribute = self.entries[name].target.split(":")
        return getattr(import_module(f"s2bl_cli.{module}"), attribute)


DATASETS = Registry(
    "dataset",
    {
        "sample": Entry(
            "datasets.sample:load", "7,000 FashionMNIST images that ship with s2bl (6,000 train, 1,000 test)"
        ),
        "fmnist": Entry("datasets.fmnist:load", "FashionMNIST: 60,000 + 10,000 images of 28×28, 10 classes"),
        "mnist": Entry("datasets.mnist:load", "MNIST: 60,000 + 10,000 images of 28×28, 10 classes"),
        "emnist": Entry(
            "datasets.emnist:load", "EMNIST: 28×28 characters, by default its split mnist (--emnist-split)"
        ),
        "cifar10": Entry("datasets.cifar10:load", "CIFAR-10: 50,000 + 10,000 images of 3×32×32, 10 classes"),
        "cifar100": Entry("datasets.cifar100:load", "CIFAR-100: 50,000 + 10,000 images of 3×32×32, 100 classes"),
        "kuairec": Entry("datasets.kuairec:load", "KuaiRec: users, videos as actions, watch ratios as rewards"),
        "table": Entry("datasets.table:load", "your own .csv or .parquet file, given by its name (--label-column)"),
    },
)

MODELS = Registry(
    "model",
    {
        "linear": Entry("models.linear:build", "one linear map from context to logits"),
        "mlp": Entry("models.mlp:build", "fully connected layers with ReLU between them (--hidden)"),
        "resnet-v1": Entry("models.resnet:build_v1", "four blocks of one residual layer each, for images (--width)"),
        "resnet-v2": Entry("models.resnet:build_v2", "four blocks of two residual layers each, for images (--width)"),
    },
)

RISKS = Registry(
    "risk",
    {
        "tips": Entry("objectives.risks.tips:tips", "truncated inverse propensity score: mean(c·π/max(ν,p))"),
        "none": Entry("objectives.risks.none:none", "no risk: the regulariser alone, no feedback used"),
    },
)

REGULARISERS = Registry(
    "regulariser",
    {
        "wce": Entry("objectives.regularisers.wce:wce", "reverse KL as a propensity-weighted cross-entropy"),
        "kl": Entry("objectives.regularisers.kl:kl", "KL divergence from the logging policy"),
        "none": Entry("objectives.regularisers.none:none", "no regulariser: the risk alone"),
    },
)

METRICS = Registry(
    "metric",
    {
        "argmax-accuracy": Entry(
            "evaluation.metrics.argmax_accuracy:METRIC", "share of rows whose likeliest action is the label"
        ),
        "sampled-accuracy": Entry(
            "evaluation.metrics.sampled_accuracy:METRIC", "expected share of drawn actions that are the label"
        ),
    },
)

TABLES = Registry(
    "table",
    {
        "main": Entry("reporting.tables.main:build", "rows dataset/τ/ρ, one column a method, mean ± std over seeds"),
        "full": Entry("reporting.tables.full:build", "as main, with a row for every model too"),
        "regulariser-only": Entry(
            "reporting.tables.regulariser_only:build", "the regularisers alone beside the whole objectives"
        ),
        "missing-ratio": Entry(
            "reporting.tables.missing_ratio:build", "rows dataset/τ/known rows/ratio of missing to known rows"
        ),
        "ope": Entry(
            "reporting.tables.ope:build", "values estimated from the log, the truth where known, and the log's health"
        ),
    },
)

FIGURES = Registry(
    "figure",
    {
        "known-rows": Entry(
            "reporting.figures.known_rows:FIGURE", "accuracy against the number of known rows, a line a method"
        ),
        "missing-ratio": Entry(
            "reporting.figures.missing_ratio:FIGURE", "accuracy against the ratio of missing to known rows"
        ),
        "estimates": Entry(
            "reporting.figures.estimates:FIGURE", "values estimated from the log with intervals, against the truth"
        ),
        "learning-curves": Entry(
            "reporting.figures.learning_curves:FIGURE", "loss, risk and the like by epoch, from history files"
        ),
        "propensities": Entry(
            "reporting.figures.propensities:FIGURE", "histogram of a log's propensities, known and missing rows apart"
        ),
        "weights": Entry(
            "reporting.figures.weights:FIGURE", "median, mean, 99 % point and largest of the policies' weights on a log"
        ),
    },
)

FORMATS = Registry(
    "format",
    {
        "md": Entry("reporting.formats.markdown:render", "markdown to paste; best in bold, second underlined"),
        "latex": Entry("reporting.formats.latex:render", "a LaTeX table; needs the package booktabs"),
        "csv": Entry("reporting.formats.csv_text:render", "one line a cell, unrounded"),
        "json": Entry("reporting.formats.json_text:render", "tables, verdicts, claims and commands for programs"),
        "html": Entry(
            "reporting.formats.html:render", "one page with tables, figures, verdicts and the commands that remake it"
        ),
    },
)
