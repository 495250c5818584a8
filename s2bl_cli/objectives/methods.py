"""The methods by name. Most are plain data: a risk, a regulariser and its rows. Importing this does not import
torch."""

from dataclasses import dataclass

from s2bl_cli.contract.acts import GREEDY, PLAIN, Act
from s2bl_cli.objectives.doubly_robust import CORRECTION
from s2bl_cli.objectives.hyperparameters import NU, Hyperparameter
from s2bl_cli.registry import REGULARISERS, RISKS
from s2bl_cli.settings import Between

AUTO = "auto"  # compares other methods and trains the best of them
DEFAULT_METHOD = "wce-s2bl"  # its parts are the defaults if only --risk or --reg is given
GRADIENT_LEARNER = "training.gradient_learner:GradientLearner"


@dataclass(frozen=True)
class Method:
    """A named way to learn. Tables show its `title`."""

    title: str
    risk: str
    reg: str
    reg_rows: str  # "all" or "known"
    summary: str
    source: str
    deep_risk: str | None = None  # the risk with a deep model, if the paper uses a different one there
    learner: str = GRADIENT_LEARNER  # the class that fits it
    hyperparameters: tuple[Hyperparameter, ...] = ()  # in addition to those of risk and regulariser
    text: str = ""  # its formula, if risk and regulariser do not determine it
    advice: str = ""  # when to use it and when it fails, printed by `s2bl methods NAME`
    act: Act = PLAIN  # how its policies act, unless `train --act` is given
    copies_logging_policy: bool = False  # from the whole π₀, if the log stores it
    domain: str = ""  # and limits, if risk and regulariser do not determine them
    limits: str = ""

    def risk_of(self, deep: bool) -> str:
        return self.deep_risk if deep and self.deep_risk is not None else self.risk


_PAPER = "the paper"
_LONDON = "London & Sandler 2019"

PENALTY = Hyperparameter(
    "penalty",
    "α",
    "Ridge penalty of the reward model; auto: selected by cross-validation on the known rows",
    Between(0, 1e12, low_open=True),
    "auto",
    {"auto": lambda costs, weights: (None,)},
)

METHODS = {
    AUTO: Method(
        "Auto",
        "none",
        "none",
        "all",
        "best of several methods, by cross-validation on the known rows",
        "this project",
        learner="training.auto_run:AutoRun",
        text="the candidate with the best estimated value",
        copies_logging_policy=True,
        advice="Use it if you want the best policy for your log. It compares DM-S2BL with other methods, reports how "
        "much better than the logging policy the best one is estimated to be, and keeps the logging policy if nothing "
        "beats it. It takes several times as long as one method.",
    ),
    "wce-s2bl": Method(
        "WCE-S2BL",
        "tips",
        "wce",
        "all",
        "risk + weighted cross-entropy on all rows",
        _PAPER,
        "banditnet",
        advice="Use it if the logging policy is good and feedback is scarce. It imitates the logging policy, so it "
        "fails if that policy is poor, uniform or adverse.",
    ),
    "kl-s2bl": Method(
        "KL-S2BL",
        "tips",
        "kl",
        "all",
        "risk + KL on all rows",
        _PAPER,
        "banditnet",
        advice="Use it to compare with the paper. In our measurements it was no better than truncated IPS alone, "
        "and a large λ pushes down the probabilities of all logged actions.",
    ),
    "wce-s2blk": Method(
        "WCE-S2BLK",
        "tips",
        "wce",
        "known",
        "risk + weighted cross-entropy on known rows",
        _PAPER,
        "banditnet",
        advice="Use it only as an ablation of wce-s2bl, which it equals if all feedback is known. It ignores the "
        "rows without feedback, so it is far worse if feedback is scarce.",
    ),
    "kl-s2blk": Method(
        "KL-S2BLK",
        "tips",
        "kl",
        "known",
        "risk + KL on known rows",
        _PAPER,
        "banditnet",
        advice="Use it only as an ablation of kl-s2bl, which it equals if all feedback is known. It ignores the "
        "rows without feedback.",
    ),
    "cce-s2bl": Method(
        "CCE-S2BL",
        "tips",
        "cce",
        "all",
        "truncated IPS + calibrated cross-entropy on all rows",
        "this project",
        advice="Use it if feedback is scarce and you do not know how good the logging policy is: it imitates only "
        "logged actions that are estimated to be better than average. With a very good logging policy "
        "wce-s2bl can be better, and with plenty of feedback truncated IPS.",
    ),
    "banditnet": Method(
        "BanditNet",
        "banditnet",
        "none",
        "all",
        "SNIPS by translated costs alone",
        "Joachims et al. 2018",
        advice="Use it if feedback is plentiful and the logging policy explores; unlike truncated IPS, it also learns "
        "from rewards below the mean. It ignores the rows without feedback, and fails if feedback is "
        "scarce and the logging policy is good.",
    ),
    "b-crm": Method(
        "B-CRM",
        "tips",
        "lpr",
        "known",
        "truncated IPS + distance from a fitted logging policy",
        _LONDON,
        advice="Use it as a baseline that stays close to a good logging policy. It ignores the rows without "
        "feedback, so the fitted logging policy is poor if feedback is scarce (--risk tips --reg lpr "
        "--reg-rows all fits it to all rows).",
    ),
    "wnll-lpr": Method(
        "WNLL-LPR",
        "wnll",
        "lpr",
        "known",
        "weighted log-likelihood + distance from a fitted logging policy",
        _LONDON,
        advice="Use it instead of b-crm for an objective that is convex for linear policies. It ignores the rows "
        "without feedback.",
    ),
    "q-learning": Method(
        "Q-learning",
        "pseudo",
        "none",
        "all",
        "truncated IPS with a cost model's costs on missing rows",
        _PAPER,
        advice="Use it if the logging policy is poor and costs can be predicted from context and action. It fails "
        "if the cost model is wrong, or if the logging policy is already good.",
    ),
    "tips": Method(
        "Truncated IPS",
        "tips",
        "none",
        "all",
        "truncated IPS alone: the baseline",
        "Strehl et al. 2010",
        advice="Use it as the baseline, and if feedback is plentiful and the logging policy explores. It ignores "
        "the rows without feedback, and is noisy if feedback is scarce.",
    ),
    "dm-s2bl": Method(
        "DM-S2BL",
        "none",
        "none",
        "all",
        "best action of a reward model that knows a copy of the logging policy",
        "this project",
        learner="training.direct_learner:DM_S2BL",
        hyperparameters=(PENALTY,),
        text="argmax_a q̂(x,a), q̂ = θ_a·x + h·x + c + s·log π̂₀(a|x)",
        act=GREEDY,
        copies_logging_policy=True,
        domain="any rewards, of which some are known; propensities above 0",
        limits="Without a copy (s = 0) it is dm. With few known rows (α → ∞) its policy is the copy's most probable "
        "action for s > 0, and the least probable one for s < 0.",
        advice="Use it on any log. The copy of the logging policy is learned from all rows, and the rows with feedback "
        "decide how much it is worth. A linear model cannot learn nonlinear rewards: use --model mlp there.",
    ),
    "dm": Method(
        "DM",
        "none",
        "none",
        "all",
        "best action of a reward model, from the rows with feedback alone",
        "Dudík et al. 2011",
        learner="training.direct_learner:DM",
        hyperparameters=(PENALTY,),
        text="argmax_a q̂(x,a), q̂ = θ_a·x + h·x + c",
        act=GREEDY,
        domain="any rewards, of which some are known",
        limits="With α → ∞ all actions are worth the same.",
        advice="Use it as the baseline of DM-S2BL. It trusts its predictions for actions that were hardly tried, so it "
        "fails if the logging policy is good and feedback is scarce.",
    ),
    "dr-s2bl": Method(
        "DR-S2BL",
        "none",
        "none",
        "all",
        "expected cost by the reward model of DM-S2BL on all rows, corrected on the known ones",
        "Dudík et al. 2011; this project",
        learner="training.direct_learner:DR_S2BL",
        hyperparameters=(CORRECTION, NU),
        text="mean(Σ_a π·ĉ) + κ·mean_S((c−ĉ)·π/max(ν,p))",
        copies_logging_policy=True,
        domain="any rewards, of which some are known; propensities above 0",
        limits="With κ = 0 and a flexible policy it takes the best action of its reward model. With a reward model of "
        "0 and κ = 1 it is tips.",
        advice="Use it if the reward model of DM-S2BL may be wrong, for example a linear one of nonlinear rewards, and "
        "feedback is not too scarce. The correction costs variance, so DM-S2BL is better if its model is right.",
    ),
    "dr": Method(
        "DR",
        "none",
        "none",
        "all",
        "expected cost by a reward model, corrected, on the rows with feedback alone",
        "Dudík et al. 2011",
        learner="training.direct_learner:DR",
        hyperparameters=(CORRECTION, NU),
        text="mean_S(Σ_a π·ĉ) + κ·mean_S((c−ĉ)·π/max(ν,p))",
        domain="any rewards, of which some are known; propensities above 0",
        limits="With κ = 0 and a flexible policy it is dm. With a reward model of 0 and κ = 1 it is tips.",
        advice="Use it as the baseline of DR-S2BL. It ignores the rows without feedback.",
    ),
    "wce-only": Method(
        "WCE only",
        "none",
        "wce",
        "all",
        "weighted cross-entropy alone, no feedback used",
        _PAPER,
        advice="Use it as an ablation, or if there is no feedback and the logging policy is good. It sharpens the "
        "logging policy, so it repeats the mistakes of that policy.",
    ),
    "match-only": Method(
        "Copy of the logging policy",
        "none",
        "match",
        "all",
        "matched propensities alone, no feedback used",
        "this project",
        advice="Use it to act as the logging policy did: it is a copy of that policy, fitted to the logged "
        "propensities. --method auto writes it if no other policy is better.",
    ),
    "kl-only": Method(
        "KL only",
        "none",
        "kl",
        "all",
        "KL alone, no feedback used",
        _PAPER,
        advice="Use it only as an ablation. It uses no feedback, so it cannot learn which actions are better than "
        "those of the logging policy.",
    ),
}


def formula(method: Method) -> str:
    """The objective in one line; a regulariser on known rows only is marked as such."""
    risk, regulariser = RISKS.load(method.risk), REGULARISERS.load(method.reg)
    on_known = " on S" if method.reg_rows == "known" and regulariser.default_rows != "known" else ""
    terms = (risk.text, regulariser.text and f"λ·{regulariser.text}{on_known}")
    return method.text or " + ".join(filter(None, terms))


def method_name(risk: str, reg: str, reg_rows: str, *, deep: bool = False) -> str:
    """The name of a combination; if it has no name, its parts are listed."""
    sees_rows = bool(REGULARISERS.load(reg).needs) if reg in REGULARISERS.names else True
    for name, method in METHODS.items():
        is_same = (method.risk_of(deep), method.reg, method.learner) == (risk, reg, GRADIENT_LEARNER)
        if is_same and (not sees_rows or method.reg_rows == reg_rows):
            return name
    return f"{risk}+{reg}" if not sees_rows or reg_rows == "all" else f"{risk}+{reg}-known"
