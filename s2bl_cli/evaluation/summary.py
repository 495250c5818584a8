"""A short summary of the scores: one line per policy and log. The file has all scores."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from s2bl_cli.contract.scores import Score
from s2bl_cli.contract.settings_text import decode_settings
from s2bl_cli.evaluation.comparison import headline
from s2bl_cli.metrics.gains import BETTER

ACCURACY = "accuracy"  # of the policy as it acts
_ACCURACIES = ("argmax-accuracy", "sampled-accuracy")


def summary_lines(scores: Sequence[Score]) -> Iterator[str]:
    for _, group in groupby(scores, key=lambda score: (score.policy, score.policy_sha256, score.log, score.log_sha256)):
        rows = list(group)
        by_metric = {score.metric: score for score in rows if score.label is None}
        act = decode_settings(rows[0].settings, rows[0].policy).get("act")  # none for the softmax
        accuracies = _ACCURACIES if act is None else (ACCURACY, *_ACCURACIES)
        parts = [_with_error(by_metric[name]) for name in accuracies if name in by_metric]
        if (name := headline(by_metric)) is not None:
            parts.append(_with_interval(by_metric[name]))
        parts += [str(by_metric[name].note) for name in (BETTER, "health") if name in by_metric]
        shown = parts or [_with_error(score) for score in by_metric.values()][:3]
        if shown:
            policy = rows[0].policy if act is None else f"{rows[0].policy} ({act})"
            yield f"{policy} on {rows[0].log}: {'; '.join(shown)}"


def _with_error(score: Score) -> str:
    return f"{score.metric} {score.value:.4f}" + ("" if score.stderr is None else f" ± {score.stderr:.4f}")


def _with_interval(score: Score) -> str:
    interval = "" if score.low is None or score.high is None else f" in [{score.low:.4f}, {score.high:.4f}]"
    return f"value ({score.metric}) {score.value:.4f}{interval}"
