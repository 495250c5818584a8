"""Count in how many scenarios the paper's claims hold: in the paper's own tables, and on our logs.

    python bench/claims.py docs/results/fmnist-linear.parquet …     # scores files, one per sweep

A scenario is a dataset, a τ, a ρ and a class of models (linear or deep). As in the paper, accuracies of policies are of
their argmax, means over seeds, and the accuracy of a logging policy is sampled. Only methods that the paper has are
compared, and a claim counts a scenario only if all methods that it names have been run there. The claims are a literal
table at the foot of the file. A count says nothing about significance.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from s2bl_cli.contract.scores import LOGGING_POLICY, read_scores
from s2bl_cli.reporting.against import model_class
from s2bl_cli.reporting.published import paper
from s2bl_cli.reporting.quantities import ARGMAX_ACCURACY, SAMPLED_ACCURACY
from s2bl_cli.reporting.selection import selected_scores

WCE, KL, WCE_K, KL_K = "wce-s2bl", "kl-s2bl", "wce-s2blk", "kl-s2blk"
PROPOSED = (WCE, KL)
ON_KNOWN_ROWS = (WCE_K, KL_K)
BASELINE = {"linear": "b-crm", "deep": "banditnet"}
NAMES = {"fmnist": "FashionMNIST", "mnist": "MNIST", "cifar10": "CIFAR-10", "emnist": "EMNIST", "cifar100": "CIFAR-100"}


@dataclass(frozen=True)
class Scenario:
    """Accuracies by method on one log and one mask. `missing` is the number of missing rows, if it was fixed."""

    dataset: str
    model: str  # linear or deep
    tau: float
    rho: float
    accuracy: Mapping[str, float]
    missing: int | None = None

    def has(self, *methods: str) -> bool:
        return all(method in self.accuracy for method in methods)

    @property
    def compared(self) -> dict[str, float]:
        """The paper's methods of its main tables; empty if one was not run. At ρ = 1 both variants are the same."""
        methods = (*PROPOSED, *(ON_KNOWN_ROWS if self.rho < 1 else ()), BASELINE[self.model])
        return {method: self.accuracy[method] for method in methods} if self.has(*methods) else {}

    def is_best(self, *methods: str) -> bool:
        return max(self.compared[method] for method in methods) >= max(self.compared.values())


Scenarios = Sequence[Scenario]
Outcomes = Iterator[tuple[str, bool]]  # a dataset, and whether the claim holds in one of its scenarios


@dataclass(frozen=True)
class Claim:
    text: str
    count: Callable[[Scenarios], Outcomes]
    tables: tuple[str, ...] = ()  # of the paper; none: it is a figure


# --- what a claim counts ---


def wce_is_best(model: str, rho: float | None = None) -> Callable[[Scenarios], Outcomes]:
    def count(scenarios: Scenarios) -> Outcomes:
        for one in scenarios:
            if one.model == model and one.compared and rho in (None, one.rho):
                yield one.dataset, one.is_best(WCE)

    return count


def is_above(method: str, other: str, model: str | None = None, tau: float | None = None,
             *, below_one: bool = False) -> Callable[[Scenarios], Outcomes]:  # fmt: skip
    """`other`: a method, or `baseline`."""

    def count(scenarios: Scenarios) -> Outcomes:
        for one in scenarios:
            rival = BASELINE[one.model] if other == "baseline" else other
            is_wanted = model in (None, one.model) and tau in (None, one.tau) and not (below_one and one.rho == 1)
            if is_wanted and one.missing is None and one.has(method, rival):
                yield one.dataset, one.accuracy[method] > one.accuracy[rival]

    return count


def none_is_above_the_logging_policy(scenarios: Scenarios) -> Outcomes:
    for one in scenarios:
        if (one.dataset, one.model, one.tau) == ("fmnist", "linear", 1.0) and one.compared and one.has(LOGGING_POLICY):
            yield one.dataset, max(one.compared.values()) < one.accuracy[LOGGING_POLICY]


def proposed_are_best_if_nearly_uniform(scenarios: Scenarios) -> Outcomes:
    for one in scenarios:
        if one.tau == 20 and one.compared:
            yield one.dataset, one.is_best(*PROPOSED)


def wce_loses_least(scenarios: Scenarios) -> Outcomes:
    """From the largest ρ that was run to the smallest, of WCE-S2BL, KL-S2BL and the baseline."""
    groups: dict[tuple[str, str, float], list[Scenario]] = {}
    for one in scenarios:
        if one.missing is None and one.has(WCE, KL, BASELINE[one.model]):
            groups.setdefault((one.dataset, one.model, one.tau), []).append(one)
    for group in groups.values():
        low, high = min(group, key=lambda one: one.rho), max(group, key=lambda one: one.rho)
        if low.rho < high.rho:
            loss = {method: high.accuracy[method] - low.accuracy[method] for method in (WCE, KL, BASELINE[low.model])}
            yield low.dataset, loss[WCE] <= min(loss.values())


def deep_is_above_linear(scenarios: Scenarios) -> Outcomes:
    linear = {(one.dataset, one.tau, one.rho): one for one in scenarios if one.model == "linear"}
    for one in scenarios:
        other = linear.get((one.dataset, one.tau, one.rho))
        if one.model == "deep" and other is not None and one.has(WCE) and other.has(WCE):
            yield one.dataset, one.accuracy[WCE] > other.accuracy[WCE]


def missing_rows_help(method: str, most: int = 24_000) -> Callable[[Scenarios], Outcomes]:
    """Many missing rows against none, with the same known rows."""

    def count(scenarios: Scenarios) -> Outcomes:
        with_none = {(one.dataset, one.model, one.tau): one for one in scenarios if one.missing == 0}
        for one in scenarios:
            other = with_none.get((one.dataset, one.model, one.tau))
            if one.missing == most and one.has(method) and other is not None and other.has(method):
                yield one.dataset, one.accuracy[method] > other.accuracy[method]

    return count


# --- the numbers ---


def scenarios_of_paper(tables: Sequence[str]) -> list[Scenario]:
    rows = paper().filter(pl.col("table").is_in(list(tables)), pl.col("model").is_not_null())
    names = ["table", "dataset", "model", "tau", "rho"]
    return [
        Scenario(*key[1:], accuracy=dict(group.select("method", "mean").iter_rows()))  # type: ignore[arg-type]
        for key, group in rows.group_by(names, maintain_order=True)
    ]


def scenarios_of_files(files: Sequence[Path]) -> list[Scenario]:
    return [one for file in files for one in scenarios_of_file(file)]


def scenarios_of_file(file: Path) -> Iterator[Scenario]:
    scores = selected_scores(read_scores([str(file)])[0], ())
    is_logging = pl.col("method") == LOGGING_POLICY
    drawn = scores.filter(is_logging, metric=SAMPLED_ACCURACY).select("dataset", "tau", "value")
    logging = {(dataset, tau): value for dataset, tau, value in drawn.iter_rows()}
    policies = scores.filter(~is_logging, metric=ARGMAX_ACCURACY)
    is_fixed = policies.select("known", "missing").unique().height > 1 and policies["known"].n_unique() == 1
    names = ["dataset", "model", "tau", "rho", "missing"]
    for (dataset, model, tau, rho, missing), group in policies.group_by(names, maintain_order=True):
        means = dict(group.group_by("method").agg(pl.col("value").mean()).iter_rows())
        own = {LOGGING_POLICY: logging[dataset, tau]} if (dataset, tau) in logging else {}
        yield Scenario(str(dataset), str(model_class(str(model))), tau, rho, means | own, missing if is_fixed else None)


# --- the table ---


def table(ours: Scenarios) -> str:
    lines = ["| the paper's claim | in the paper's tables | on our logs |", "| --- | --- | --- |"]
    for claim in CLAIMS:
        theirs = list(claim.count(scenarios_of_paper(claim.tables)))
        published = _total(theirs) if claim.tables else "a figure"
        lines.append(f"| {claim.text} | {published} | {_by_dataset(claim, ours)} |")
    return "\n".join(lines)


def _total(outcomes: Sequence[tuple[str, bool]]) -> str:
    return f"{sum(holds for _, holds in outcomes)} of {len(outcomes)}" if outcomes else "–"


def _by_dataset(claim: Claim, ours: Scenarios) -> str:
    outcomes = list(claim.count(ours))
    parts = []
    for dataset in dict.fromkeys(name for name, _ in outcomes):
        own = [outcome for outcome in outcomes if outcome[0] == dataset]
        parts.append(f"{NAMES.get(dataset, dataset)} {_total(own)}")
    return ", ".join(parts) or "not run"


LINEAR = ("main-linear-full", "main-linear-EM-Cifar-100")
DEEP = ("main-banditnet-full", "main-banditnet-full-emn-cifar-100")
MAIN = (*LINEAR, *DEEP)

CLAIMS = (
    Claim("WCE-S2BL has the highest accuracy, linear (“70 out of 80”)", wce_is_best("linear"), LINEAR),
    Claim("WCE-S2BL has the highest accuracy, deep (“47 out of 65”)", wce_is_best("deep"), DEEP),
    Claim("At ρ = 0.02, WCE-S2BL is the best “for all settings”, linear", wce_is_best("linear", 0.02), LINEAR),
    Claim("At ρ = 0.02, WCE-S2BL is the best “for all settings”, deep", wce_is_best("deep", 0.02), DEEP),
    Claim("Missing rows help “in all cases”: WCE-S2BL above WCE-S2BLK", is_above(WCE, WCE_K, below_one=True), MAIN),
    Claim("Missing rows help “in all cases”: KL-S2BL above KL-S2BLK", is_above(KL, KL_K, below_one=True), MAIN),
    Claim("WCE-S2BL is above B-CRM, linear", is_above(WCE, "baseline", "linear"), LINEAR),
    Claim("KL-S2BL is above B-CRM, linear", is_above(KL, "baseline", "linear"), LINEAR),
    Claim("WCE-S2BL is above BanditNet, deep", is_above(WCE, "baseline", "deep"), DEEP),
    Claim("KL-S2BL is above BanditNet, deep", is_above(KL, "baseline", "deep"), DEEP),
    Claim("The regulariser helps on known rows alone: WCE-S2BLK above the baseline", is_above(WCE_K, "baseline"), MAIN),
    Claim("The regulariser helps on known rows alone: KL-S2BLK above the baseline", is_above(KL_K, "baseline"), MAIN),
    Claim("WCE-S2BL is above KL-S2BL", is_above(WCE, KL), MAIN),
    Claim("WCE-S2BL is above the logging policy (sampled)", is_above(WCE, LOGGING_POLICY), MAIN),
    Claim(
        "Linear FashionMNIST, τ = 1: no method is above the logging policy", none_is_above_the_logging_policy, LINEAR
    ),
    Claim("τ = 20: WCE-S2BL or KL-S2BL is the best", proposed_are_best_if_nearly_uniform, MAIN),
    Claim("With less feedback, WCE-S2BL loses less than KL-S2BL and the baseline", wce_loses_least, MAIN),
    Claim("Q-learning is below WCE-S2BL", is_above(WCE, "q-learning"), ("Q-learning",)),
    Claim("Q-learning is below KL-S2BL", is_above(KL, "q-learning"), ("Q-learning",)),
    Claim("WCE-S2BL is above its regulariser alone", is_above(WCE, "wce-only"), ("only-regulariser",)),
    Claim("KL-S2BL is above its regulariser alone", is_above(KL, "kl-only"), ("only-regulariser",)),
    Claim("Deep policies are above linear ones (WCE-S2BL)", deep_is_above_linear, MAIN),
    Claim("24,000 missing rows are better than none, WCE-S2BL", missing_rows_help(WCE)),
    Claim("24,000 missing rows are better than none, KL-S2BL", missing_rows_help(KL)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count in how many scenarios the paper's claims hold.")
    parser.add_argument("scores", nargs="+", type=Path, help="scores files, one per sweep")
    print(table(scenarios_of_files(parser.parse_args().scores)))


if __name__ == "__main__":
    main()
