"""Scores as `evaluate` would write them, made up: single ones, the paper's Table 2, and estimates of values."""

import json
from dataclasses import fields, replace
from typing import Any

from s2bl_cli.contract.history import HistoryRow
from s2bl_cli.contract.lineage import Source, Step
from s2bl_cli.contract.scores import BIN, LOGGING_POLICY, SCHEMA, Score
from s2bl_cli.contract.settings_text import encode_settings

LINEAGE = Step(
    "evaluate",
    {"split": "test"},
    "0.1.0",
    (
        Source("policy", "b" * 64, None, Step("train", {"method": "wce-s2bl", "seed": 0}, "0.1.0",
               (Source("logs", "a" * 64, "logs.parquet"),))),
        Source("logs", "a" * 64, "logs.parquet"),
    ),
)  # fmt: skip

_TRAINED = {"dataset": "sample", "tau": 10.0, "rho": 0.02, "risk": "tips", "reg": "wce", "reg_rows": "all", "lam": 1.0,
            "sharpen": None, "translation": None, "nu": 0.001, "model": "linear", "known": None,
            "missing": None}  # fmt: skip


def row_of(kind: type[Any], **columns: Any) -> Any:
    """A row of scores or of a history: what is no column of it is a setting, and what is not given is null."""
    names = [field.name for field in fields(kind)]
    settings = {name: value for name, value in columns.items() if name not in names}
    return kind(**{"settings": encode_settings(settings), **{n: columns.get(n) for n in names if n != "settings"}})


def history_row(policy: str, method: str, seed: int, epoch: int, quantity: str, value: float, **settings: Any) -> Any:
    own = {"policy": policy, "method": method, "seed": seed, "epoch": epoch, "quantity": quantity, "value": value}
    return row_of(HistoryRow, **own, **settings)


def settings_of(row: Any) -> dict[str, Any]:
    """Of a score or a row of a table."""
    settings: dict[str, Any] = json.loads(row["settings"] if isinstance(row, dict) else row.settings)
    return settings


def score(value: float, method: str = "wce-s2bl", seed: int | None = 0, **changes: Any) -> Score:
    """A policy's argmax accuracy on the log a.parquet. The policy's name and digest follow from how it was trained."""
    trained = {**_TRAINED, "method": method, "seed": seed}
    trained |= {name: change for name, change in changes.items() if name in trained or name not in SCHEMA.names}
    data = (trained["dataset"], trained["tau"])
    digest = "a" if data == ("sample", 10.0) else "-".join(map(str, data))  # one log per dataset and τ
    scored = {"log": "a.parquet", "log_sha256": digest, "split": "test", "metric": "argmax-accuracy", "label": None,
              "value": value, "stderr": 0.01, "low": None, "high": None, "level": None, "interval": None, "rows": 1000,
              "note": None}  # fmt: skip
    name = "-".join(str(part) for part in trained.values())
    made: Score = row_of(Score, **{"policy": name, "policy_sha256": name, **trained, **scored, **changes})
    return made


def logging(value: float, **changes: Any) -> Score:
    """The logging policy of a log that stores its distribution."""
    nothing = dict.fromkeys(("policy_sha256", "rho", "risk", "reg", "reg_rows", "lam", "nu", "seed"))
    own = {"policy": LOGGING_POLICY, "metric": "argmax-accuracy", **nothing, **changes}
    return score(value, LOGGING_POLICY, **own)


# The paper's table of deep policies: dataset, τ, ρ → WCE-S2BL, KL-S2BL, WCE-S2BLK, KL-S2BLK, BanditNet, as mean and
# deviation in percent, and the logging policy.
TABLE_2 = {
    ("fmnist", 1.0, 0.2): ([(93.16, 0.18), (92.04, 0.13), (82.76, 4.45), (87.72, 0.53), (89.60, 0.49)], 91.73),
    ("fmnist", 1.0, 0.02): ([(93.12, 0.16), (91.79, 0.16), (78.66, 0.90), (61.46, 9.97), (78.64, 1.97)], 91.73),
    ("fmnist", 10.0, 0.2): ([(89.47, 0.30), (79.45, 0.75), (88.31, 0.14), (67.53, 2.06), (88.35, 0.45)], 20.72),
    ("fmnist", 10.0, 0.02): ([(89.35, 0.15), (69.94, 0.60), (77.82, 0.73), (45.18, 19.82), (23.52, 3.15)], 20.72),
    ("cifar10", 1.0, 0.2): ([(85.06, 0.32), (85.53, 0.56), (58.04, 5.47), (54.12, 0.51), (67.96, 0.62)], 79.77),
    ("cifar10", 1.0, 0.02): ([(85.01, 0.37), (84.60, 0.65), (17.12, 0.97), (21.63, 1.44), (27.39, 3.47)], 79.77),
    ("cifar10", 10.0, 0.2): ([(69.40, 0.47), (48.44, 0.26), (55.38, 3.63), (44.60, 0.19), (50.38, 0.55)], 43.45),
    ("cifar10", 10.0, 0.02): ([(65.67, 1.06), (37.80, 0.85), (32.61, 1.14), (20.66, 5.74), (13.78, 1.99)], 43.45),
}
TABLE_2_METHODS = ("wce-s2bl", "kl-s2bl", "wce-s2blk", "kl-s2blk", "banditnet")
_ROWS = {"fmnist": 60_000, "cifar10": 50_000}


def table_2_scores() -> list[Score]:
    """Three seeds a cell, at mean − std, mean, mean + std: their deviation with n − 1 is std again."""
    scores = []
    for (dataset, tau, rho), (cells, own) in TABLE_2.items():
        known = round(rho * _ROWS[dataset])
        place = {"dataset": dataset, "tau": tau, "log": f"{dataset}-{tau:g}", "log_sha256": f"{dataset}{tau:g}"}
        sizes = {"rho": rho, "known": known, "missing": _ROWS[dataset] - known, "model": "resnet-v2", "rows": 10_000}
        for method, (mean, std) in zip(TABLE_2_METHODS, cells, strict=True):
            scores += [
                score((mean + (seed - 1) * std) / 100, method, seed, **place, **sizes, stderr=0.004)
                for seed in range(3)
            ]
        scores.append(logging(own / 100, **place, model="resnet-v1", rows=10_000, stderr=0.004))
    return list({(s.policy, s.log, s.metric): s for s in scores}.values())


def weight_shares(shares: tuple[float, ...], method: str = "wce-s2bl", **changes: Any) -> list[Score]:
    """A histogram of weights in four bins: from 0, 0.3, 1.5 and 150 on."""
    edges = (0.0, 0.3, 1.5, 150.0, None)
    return [
        score(share, method, metric="weight-share", label=i, low=edges[i], high=edges[i + 1], interval=BIN, stderr=None,
              **changes)
        for i, share in enumerate(shares)
    ]  # fmt: skip


ESTIMATES = {"ips": 0.712, "snips": 0.705, "dm": 0.640, "dr": 0.701, "ppi-dr": 0.703}


def ope_scores() -> list[Score]:
    """Two policies and the logging policy on one log, with the truth and the log's health."""
    scores = []
    for method, shift, verdict in (
        ("wce-s2bl", 0.0, (2.0, "reliable: effective sample size 812 of 1,000, mean weight 0.98")),
        ("tips", -0.1, (1.0, "caution: only 80 effective rows of 1,000")),
    ):
        width = 0.02 if method == "wce-s2bl" else 0.05
        for metric, value in ESTIMATES.items():
            middle = value + shift
            scores.append(
                score(middle, method, metric=metric, stderr=width / 2, low=middle - width, high=middle + width,
                      level=0.95, interval="normal")
            )  # fmt: skip
        plain = {"stderr": None}
        scores += [
            score(-0.7 - shift, method, metric="true-risk"),
            score(812.4 if shift == 0 else 80.2, method, metric="ess", **plain),
            score(0.8124 if shift == 0 else 0.0802, method, metric="ess-share", **plain),
            score(0.99, method, metric="mean-weight", stderr=0.01),
            score(0.7, method, metric="weight-p50", **plain),
            score(4.0 if shift == 0 else 60.0, method, metric="weight-p99", **plain),
            score(9.5 if shift == 0 else 412.0, method, metric="weight-max", **plain),
            *weight_shares((0.2, 0.7, 0.1, 0.0) if shift == 0 else (0.5, 0.2, 0.2, 0.1), method),
            score(verdict[0], method, metric="health", note=verdict[1], **plain),
        ]
    own = logging(0.25, metric="ips", low=0.24, high=0.26, level=0.95, interval="normal")
    return [*scores, own, replace(own, metric="true-risk", value=-0.25, low=None, high=None)]
