"""The paper's methods are data: which risk, which regulariser, on which rows. Importing this imports no torch."""

from dataclasses import dataclass

DEFAULT_METHOD = "wce-s2bl"

# λ where none is given. KL's is small because its per-action estimate is least at π = p/e: a large λ drives
# the logged actions' probabilities down instead of towards the logging policy.
DEFAULT_LAM = {"wce": 1.0, "kl": 0.001, "none": 0.0}


@dataclass(frozen=True)
class Method:
    """A named combination. `title` is how tables call it."""

    title: str
    risk: str
    reg: str
    reg_rows: str  # "all" or "known"
    summary: str


METHODS = {
    "wce-s2bl": Method("WCE-S2BL", "tips", "wce", "all", "truncated IPS + weighted cross-entropy on all rows"),
    "kl-s2bl": Method("KL-S2BL", "tips", "kl", "all", "truncated IPS + KL on all rows"),
    "wce-s2blk": Method("WCE-S2BLK", "tips", "wce", "known", "truncated IPS + weighted cross-entropy on known rows"),
    "kl-s2blk": Method("KL-S2BLK", "tips", "kl", "known", "truncated IPS + KL on known rows"),
    "tips": Method("Truncated IPS", "tips", "none", "all", "truncated IPS alone: the baseline"),
    "wce-only": Method("WCE only", "none", "wce", "all", "weighted cross-entropy alone, no feedback used"),
    "kl-only": Method("KL only", "none", "kl", "all", "KL alone, no feedback used"),
}


def method_name(risk: str, reg: str, reg_rows: str) -> str:
    """The name of a combination; one that has none is spelled out."""
    for name, method in METHODS.items():
        if (method.risk, method.reg) == (risk, reg) and (reg == "none" or method.reg_rows == reg_rows):
            return name
    return f"{risk}+{reg}" if reg == "none" or reg_rows == "all" else f"{risk}+{reg}-known"
