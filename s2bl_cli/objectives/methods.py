"""The paper's methods are data: which risk, which regulariser, on which rows. Importing this imports no torch."""

from dataclasses import dataclass

DEFAULT_METHOD = "wce-s2bl"

# λ where none is given. KL's is small because its per-action estimate is least at π = p/e: a large λ drives
# the logged actions' probabilities down instead of towards the logging policy.
DEFAULT_LAM = {"wce": 1.0, "kl": 0.001, "cce": 1.0, "lpr": 0.001, "none": 0.0}


@dataclass(frozen=True)
class Method:
    """A named combination. `title` is how tables call it."""

    title: str
    risk: str
    reg: str
    reg_rows: str  # "all" or "known"
    summary: str
    source: str
    deep_risk: str | None = None  # the risk with a deep model, where the paper takes another one there

    def risk_of(self, deep: bool) -> str:
        return self.deep_risk if deep and self.deep_risk is not None else self.risk


# The terms as `s2bl methods` writes them; w = π/p, r = −c.
RISK_FORMULAS = {
    "tips": "mean_S(c·π/max(ν,p))",
    "ips": "mean_S(c·w)",
    "banditnet": "mean_S((c−t)·π/max(ν,p))",
    "wnll": "mean_S(c·log π/max(ν,p))",
    "pseudo": "mean(ĉ·π/max(ν,p)), ĉ filled in",
    "ix": "mean_S(c·π/(p+γ))",
    "es": "mean_S(c·π/p^α)",
    "ls": "−mean_S(ln(1+λ·w·r))/λ",
    "lse": "−ln(mean_S(exp(λ·w·r)))/λ",
    "os": "mean_S(c·λw/(w²+λ))",
    "none": "",
}
REGULARISER_FORMULAS = {
    "wce": "Σ_a mean_a(−p·log π)",
    "kl": "Σ_a mean_a(π·log(π/max(ν,p)))",
    "cce": "mean(m·(−log π)), m the calibrated merit",
    "lpr": "‖θ−θ₀‖²",
    "none": "",
}

_PAPER = "the paper"
_LONDON = "London & Sandler 2019"

METHODS = {
    "wce-s2bl": Method(
        "WCE-S2BL", "tips", "wce", "all", "risk + weighted cross-entropy on all rows", _PAPER, "banditnet"
    ),
    "kl-s2bl": Method("KL-S2BL", "tips", "kl", "all", "risk + KL on all rows", _PAPER, "banditnet"),
    "wce-s2blk": Method(
        "WCE-S2BLK", "tips", "wce", "known", "risk + weighted cross-entropy on known rows", _PAPER, "banditnet"
    ),
    "kl-s2blk": Method("KL-S2BLK", "tips", "kl", "known", "risk + KL on known rows", _PAPER, "banditnet"),
    "cce-s2bl": Method(
        "CCE-S2BL", "tips", "cce", "all", "truncated IPS + calibrated cross-entropy on all rows", "this project"
    ),
    "banditnet": Method(
        "BanditNet", "banditnet", "none", "all", "SNIPS by translated costs alone", "Joachims et al. 2018"
    ),
    "b-crm": Method("B-CRM", "tips", "lpr", "known", "truncated IPS + distance from a fitted logging policy", _LONDON),
    "wnll-lpr": Method(
        "WNLL-LPR", "wnll", "lpr", "known", "weighted log-likelihood + distance from a fitted logging policy", _LONDON
    ),
    "q-learning": Method(
        "Q-learning", "pseudo", "none", "all", "truncated IPS with a cost model's costs on missing rows", _PAPER
    ),
    "tips": Method("Truncated IPS", "tips", "none", "all", "truncated IPS alone: the baseline", "Strehl et al. 2010"),
    "wce-only": Method("WCE only", "none", "wce", "all", "weighted cross-entropy alone, no feedback used", _PAPER),
    "kl-only": Method("KL only", "none", "kl", "all", "KL alone, no feedback used", _PAPER),
}


def formula(risk: str, reg: str, reg_rows: str) -> str:
    """The objective in a line; regularisers on known rows only are marked so."""
    regulariser = REGULARISER_FORMULAS[reg]
    if regulariser and reg_rows == "known" and reg != "lpr":
        regulariser += " on S"
    terms = [RISK_FORMULAS[risk], f"λ·{regulariser}" if regulariser else ""]
    return " + ".join(term for term in terms if term)


def method_name(risk: str, reg: str, reg_rows: str, *, deep: bool = False) -> str:
    """The name of a combination; one that has none is spelled out."""
    for name, method in METHODS.items():
        if (method.risk_of(deep), method.reg) == (risk, reg) and (reg == "none" or method.reg_rows == reg_rows):
            return name
    return f"{risk}+{reg}" if reg == "none" or reg_rows == "all" else f"{risk}+{reg}-known"
