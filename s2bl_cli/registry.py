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
        target = load_target(self.entries[name].target)
        return target[name] if isinstance(target, dict) else target  # a file of several has a literal table of them


def load_target(target: str) -> Any:
    """`training.schedules:cosine` → the object."""
    module, attribute = target.split(":")
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
        "linear": Entry("policies.linear:build", "one linear map from context to logits"),
        "mlp": Entry("policies.mlp:build", "fully connected layers with ReLU between them (--hidden)"),
        "resnet-v1": Entry("policies.resnet:BUILDERS", "four blocks of one residual layer each, for images (--width)"),
        "resnet-v2": Entry("policies.resnet:BUILDERS", "four blocks of two residual layers each, for images (--width)"),
    },
)

RISKS = Registry(
    "risk",
    {
        "tips": Entry("objectives.risks.tips:RISK", "truncated inverse propensity score"),
        "ips": Entry("objectives.risks.ips:RISK", "inverse propensity score"),
        "banditnet": Entry(
            "objectives.risks.banditnet:RISK", "SNIPS made trainable by a baseline that is subtracted from the costs"
        ),
        "wnll": Entry("objectives.risks.wnll:RISK", "weighted log-likelihood"),
        "pseudo": Entry("objectives.risks.pseudo:RISK", "tips on all rows, missing costs filled in (--cost-model)"),
        "ix": Entry("objectives.risks.ix:RISK", "implicit exploration"),
        "es": Entry("objectives.risks.es:RISK", "exponential smoothing"),
        "ls": Entry("objectives.risks.ls:RISK", "logarithmic smoothing"),
        "lse": Entry("objectives.risks.lse:RISK", "log-sum-exponential"),
        "os": Entry("objectives.risks.os:RISK", "optimistic shrinkage of the weights"),
        "none": Entry("objectives.risks.none:RISK", "no risk: the regulariser alone, no feedback used"),
    },
)

REGULARISERS = Registry(
    "regulariser",
    {
        "wce": Entry("objectives.regularisers.wce:REGULARISER", "reverse KL as a propensity-weighted cross-entropy"),
        "kl": Entry("objectives.regularisers.kl:REGULARISER", "KL divergence from the logging policy"),
        "cce": Entry(
            "objectives.regularisers.cce:REGULARISER",
            "cross-entropy with logged actions that are estimated to be better than average",
        ),
        "match": Entry(
            "objectives.regularisers.match:REGULARISER", "log-probabilities matched with the logged propensities"
        ),
        "lpr": Entry(
            "objectives.regularisers.lpr:REGULARISER", "squared distance from a policy fitted to the logged actions"
        ),
        "none": Entry("objectives.regularisers.none:REGULARISER", "no regulariser: the risk alone"),
    },
)

COST_MODELS = Registry(
    "cost model",
    {
        "propensity": Entry("training.expected_rewards:by_propensity", "isotonic in the propensity"),
        "logistic": Entry("training.expected_rewards:by_logistic", "logistic in context and action, as in the paper"),
    },
)

REWARD_MODELS = Registry(
    "reward model",
    {
        "logistic": Entry(
            "reward_models.logistic:cross_fit", "linear per action, logistic in the range of the rewards"
        ),
        "ridge": Entry("reward_models.ridge:cross_fit", "linear per action, squared loss, strength cross-validated"),
        "mlp": Entry("reward_models.mlp:cross_fit", "one hidden layer shared by all actions, strength cross-validated"),
    },
)

OPTIMIZERS = Registry(
    "optimizer",
    {
        "adam": Entry("policies.optimizers:Adam", "Adam (Kingma & Ba 2015)"),
        "adamw": Entry("policies.optimizers:adamw", "Adam with decoupled weight decay (Loshchilov & Hutter 2019)"),
        "sgd": Entry("policies.optimizers:Sgd", "plain stochastic gradient descent"),
    },
)

SCHEDULES = Registry(
    "schedule",
    {
        "constant": Entry("training.schedules:constant", "constant learning rate"),
        "step": Entry("training.schedules:halved", "halved every 25 epochs, as in the paper"),
        "cosine": Entry("training.schedules:cosine", "half a cosine down to 0"),
        "one-cycle": Entry("training.schedules:one_cycle", "up for 30 % of the steps, then down to nearly 0"),
    },
)

SELECTORS = Registry(
    "selector",
    {
        "snips": Entry("training.validation:SELECTORS_BY_NAME", "self-normalised inverse propensity score"),
        "ips": Entry("training.validation:SELECTORS_BY_NAME", "truncated inverse propensity score"),
        "dr": Entry("training.validation:SELECTORS_BY_NAME", "doubly robust, with a logistic cost model"),
        "ls-bound": Entry(
            "training.validation:SELECTORS_BY_NAME",
            "lower bound by logarithmic smoothing, at 95 % if --reward-range is given",
        ),
    },
)

LABEL_METRICS = Registry(
    "metric with labels",
    {
        "argmax-accuracy": Entry(
            "metrics.labels:METRICS", "share of rows in which the most probable action is the label"
        ),
        "sampled-accuracy": Entry(
            "metrics.labels:METRICS", "expected share of actions drawn from the softmax that equal the label"
        ),
        "accuracy": Entry(
            "metrics.labels:METRICS", "expected share of actions that equal the label, as the policy acts"
        ),
        "true-risk": Entry("metrics.labels:METRICS", "expected cost of the policy as it acts; lower is better"),
        "class-accuracy": Entry("metrics.labels:METRICS", "argmax accuracy in the rows of one class"),
        "argmax-accuracy-parts": Entry(
            "metrics.row_parts:METRICS",
            "argmax accuracy in each of 20 random parts of the rows, for paired comparisons",
        ),
        "sampled-accuracy-parts": Entry("metrics.row_parts:METRICS", "sampled accuracy in each of these parts"),
    },
)

ESTIMATORS = Registry(
    "estimator",
    {
        "ips": Entry("metrics.estimators.ips:ESTIMATOR", "inverse propensity score: mean(w·r), w = π/p"),
        "tips": Entry("metrics.estimators.tips:ESTIMATOR", "truncated IPS: mean(r·π/max(ν,p))"),
        "snips": Entry("metrics.estimators.snips:ESTIMATOR", "self-normalised IPS: Σw·r/Σw"),
        "ix": Entry("metrics.estimators.ix:ESTIMATOR", "implicit exploration: mean(π·r/(p + γ)), with a lower bound"),
        "ls": Entry("metrics.estimators.ls:ESTIMATOR", "logarithmic smoothing of w·r, with a lower bound"),
        "lse": Entry("metrics.estimators.lse:ESTIMATOR", "log-sum-exponential of w·r"),
        "os": Entry("metrics.estimators.os:ESTIMATOR", "optimistic shrinkage: mean(r·λw/(w² + λ))"),
        "beta-ips": Entry("metrics.estimators.beta_ips:ESTIMATOR", "IPS with the baseline that minimises its variance"),
        "dm": Entry("metrics.estimators.dm:ESTIMATOR", "direct method: mean of a cross-fitted reward model, mean(f)"),
        "dr": Entry("metrics.estimators.dr:ESTIMATOR", "doubly robust: mean(f + w·(r − q))"),
        "sndr": Entry("metrics.estimators.sndr:ESTIMATOR", "self-normalised doubly robust: mean(f) + Σw·(r − q)/Σw"),
        "switch-dr": Entry(
            "metrics.estimators.switch_dr:ESTIMATOR", "doubly robust in rows with w ≤ t, direct method in the others"
        ),
        "ppi-dr": Entry(
            "metrics.estimators.ppi_dr:ESTIMATOR", "doubly robust, with less variance by using rows without feedback"
        ),
        "empirical-ips": Entry("metrics.estimators.empirical_ips:ESTIMATOR", "the paper's empirical IPS: untruncated"),
    },
)

DIVERGENCES = Registry(
    "divergence",
    {
        "kl-exact": Entry("metrics.divergences:METRICS", "KL(π‖π₀) from the whole distributions (needs pi0)"),
        "kl-sampled": Entry("metrics.divergences:METRICS", "KL(π‖π₀) from the logged actions: mean(w·ln w)"),
        "kl-paper": Entry("metrics.divergences:METRICS", "the paper's per-action estimator of KL(π‖π₀)"),
        "reverse-kl-exact": Entry("metrics.divergences:METRICS", "KL(π₀‖π) from the whole distributions"),
        "reverse-kl-sampled": Entry(
            "metrics.divergences:METRICS", "KL(π₀‖π) from the logged actions: mean(ln p − ln π)"
        ),
        "reverse-kl-paper": Entry("metrics.divergences:METRICS", "the paper's per-action estimator of KL(π₀‖π)"),
    },
)

BOUNDS = Registry(
    "bound",
    {
        "theorem1-bound": Entry("metrics.divergences:METRICS", "the paper's upper bound of the true risk"),
        "estimator-error-bound": Entry("metrics.divergences:METRICS", "the paper's bound of the error of kl-paper"),
        "reverse-estimator-error-bound": Entry("metrics.divergences:METRICS", "the same for reverse-kl-paper"),
    },
)

HEALTH = Registry(
    "health figure",
    {
        "ess": Entry("metrics.health:METRICS", "effective sample size of the known rows: (Σw)²/Σw²"),
        "ess-share": Entry("metrics.health:METRICS", "ess as a share of the known rows"),
        "carrying-rows": Entry(
            "metrics.health:METRICS", "number of rows that carry the estimate, such as positive rewards"
        ),
        "largest-share": Entry("metrics.health:METRICS", "largest row's share of the variance of the estimate"),
        "mean-weight": Entry(
            "metrics.health:METRICS", "mean weight of all rows; close to 1 if the propensities are right"
        ),
        "weight-p50": Entry("metrics.health:METRICS", "median weight"),
        "weight-p99": Entry("metrics.health:METRICS", "99 % quantile of the weights"),
        "weight-max": Entry("metrics.health:METRICS", "largest weight"),
        "weight-share": Entry(
            "metrics.health:METRICS", "histogram of the weights: the share of the known rows in each bin"
        ),
        "truncated-share": Entry("metrics.health:METRICS", "share of rows with a propensity below ν"),
        "unsupported-share": Entry(
            "metrics.health:METRICS",
            "probability that the policy chooses an action that the logging policy does not take",
        ),
        "gamma": Entry(
            "metrics.health:METRICS",
            "factor by which missingness must depend on the reward to overturn the comparison with the logging policy",
        ),
        "health": Entry("metrics.health:METRICS", "2 reliable, 1 caution, 0 unreliable; the note has the reason"),
    },
)

METRIC_GROUPS = {
    "labels": LABEL_METRICS,
    "value": ESTIMATORS,
    "divergence": DIVERGENCES,
    "bound": BOUNDS,
    "health": HEALTH,
}

METRICS = Registry("metric", {name: entry for table in METRIC_GROUPS.values() for name, entry in table.entries.items()})

TABLES = Registry(
    "table",
    {
        "main": Entry("reporting.tables.grid:main", "rows dataset/τ/ρ, one column per method, mean ± std over seeds"),
        "full": Entry("reporting.tables.grid:full", "like main, with one row per model"),
        "regulariser-only": Entry(
            "reporting.tables.grid:regulariser_only", "the regularisers alone beside the full objectives"
        ),
        "missing-ratio": Entry(
            "reporting.tables.grid:missing_ratio", "rows dataset/τ/known rows/ratio of missing to known rows"
        ),
        "ope": Entry("reporting.tables.ope:build", "values estimated from the log, true values if known, and health"),
    },
)

# Histories and logs are given to be shown; then the figure that says most about the scores. `auto` draws the first.
FIGURES = Registry(
    "figure",
    {
        "learning-curves": Entry(
            "reporting.figures.learning_curves:FIGURE", "loss, risk and other quantities by epoch, from history files"
        ),
        "propensities": Entry(
            "reporting.figures.propensities:FIGURE",
            "histogram of a log's propensities, separately for known and missing rows",
        ),
        "missing-ratio": Entry(
            "reporting.figures.curves:MISSING_RATIO", "accuracy against the ratio of missing to known rows"
        ),
        "known-rows": Entry(
            "reporting.figures.curves:KNOWN_ROWS", "accuracy against the number of known rows, one line per method"
        ),
        "estimates": Entry(
            "reporting.figures.estimates:FIGURE", "values estimated from the log with intervals, against the truth"
        ),
        "weights": Entry(
            "reporting.figures.weights:FIGURE",
            "histograms of the policies' weights on a log",
        ),
    },
)

FORMATS = Registry(
    "format",
    {
        "md": Entry("reporting.formats.markdown:render", "markdown to paste; best in bold, second underlined"),
        "latex": Entry("reporting.formats.latex:render", "a LaTeX table; needs the packages booktabs and graphicx"),
        "csv": Entry("reporting.formats.csv_text:render", "one line per cell, unrounded"),
        "json": Entry("reporting.formats.json_text:render", "tables, verdicts, claims and commands for programs"),
        "html": Entry(
            "reporting.formats.html:render",
            "one page with tables, figures, verdicts and the commands that reproduce it",
        ),
    },
)
