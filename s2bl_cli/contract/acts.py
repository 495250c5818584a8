"""How a policy acts: how it turns logits into the probabilities of actions. `policies/acting.py` computes them.

    softmax      π = softmax(logits/temperature); temperature 1 unless it says otherwise
    argmax       the most probable action, the smallest of equals
    epsilon      (1 − ε)·argmax + ε/actions: ε is spread evenly over all actions

On the command line and in scores it is a word: softmax, argmax, temperature=0.5, epsilon=0.1. In a policy's document it
is an object: {"kind": "softmax", "temperature": 1.0}, {"kind": "argmax"}, {"kind": "epsilon", "epsilon": 0.1}.
Importing this module does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from s2bl_cli.errors import ContractError, SettingError, one_line
from s2bl_cli.settings import Between, number_text

SOFTMAX, ARGMAX, EPSILON, TEMPERATURE = "softmax", "argmax", "epsilon", "temperature"
CHOICES = "softmax, argmax, temperature=T or epsilon=E"

_RULES = {TEMPERATURE: Between(0, 1e6, low_open=True), EPSILON: Between(0, 1)}
_AMOUNTS = {SOFTMAX: TEMPERATURE, EPSILON: EPSILON}  # the name of each kind's amount


@dataclass(frozen=True)
class Act:
    """`amount` is the temperature of a softmax or the ε of an epsilon; argmax has none."""

    kind: str = SOFTMAX
    amount: float = 1.0

    @property
    def is_plain(self) -> bool:
        """Whether it is the softmax at temperature 1, which training optimises."""
        return self == PLAIN

    @property
    def text(self) -> str:
        if self.is_plain or self.kind == ARGMAX:
            return self.kind
        return f"{_AMOUNTS[self.kind]}={number_text(self.amount)}"

    def encode(self) -> dict[str, Any]:
        return {"kind": self.kind, **({_AMOUNTS[self.kind]: self.amount} if self.kind in _AMOUNTS else {})}


PLAIN = Act()
GREEDY = Act(ARGMAX, 0.0)


def act_of(kind: str, amount: float) -> Act:
    """With ε = 0 as argmax, which it is."""
    return GREEDY if kind == ARGMAX or (kind == EPSILON and amount == 0) else Act(kind, amount)


def parse_act(text: str, option: str = "--act", more: str = "") -> Act:
    """The act that a word stands for. `more` lists further words that the option takes."""
    name, equals, number = text.strip().partition("=")
    if text.strip() in (SOFTMAX, ARGMAX):
        return act_of(text.strip(), 1.0)
    try:
        amount = float(number)
    except ValueError:
        amount = float("nan")
    if not equals or name not in _RULES:
        raise SettingError(f"{option} must be {CHOICES}{more}, found {one_line(text, 40)!r}")
    if not _RULES[name].admits(amount):
        raise SettingError(f"{option} {name} must be {_RULES[name]}, found {one_line(number, 40)!r}")
    return act_of(SOFTMAX if name == TEMPERATURE else EPSILON, amount)


def decode_act(value: Any, subject: str) -> Act:
    """The act in a policy's document. The file may be untrusted, so every value is checked."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind == ARGMAX:
        return GREEDY
    name = _AMOUNTS.get(kind) if isinstance(kind, str) else None
    amount = value.get(name) if name is not None else None
    if name is None or not isinstance(amount, int | float) or isinstance(amount, bool):
        raise ContractError(
            f"{subject}: acts in its document must have the kind softmax with a temperature, argmax, or epsilon with "
            f"an epsilon, found {one_line(value, 60)}"
        )
    if not _RULES[name].admits(amount):
        raise ContractError(f"{subject}: {name} in its document must be {_RULES[name]}, found {one_line(amount, 40)}")
    return act_of(str(kind), float(amount))
