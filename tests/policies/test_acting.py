"""From logits to action probabilities, by how a policy acts."""

import numpy as np
import pytest
import torch

from s2bl_cli.contract.acts import Act, parse_act
from s2bl_cli.policies.acting import action_probabilities

LOGITS = torch.tensor([[0.0, 2.0, 1.0, 2.0], [3.0, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("argmax", [[0, 1, 0, 0], [1, 0, 0, 0]]),
        ("epsilon=0.2", [[0.05, 0.85, 0.05, 0.05], [0.85, 0.05, 0.05, 0.05]]),
        ("epsilon=1", [[0.25] * 4] * 2),
    ],
)
def test_greedy_acts_by_hand(word: str, wanted: list[list[float]]) -> None:
    """A tie of actions 1 and 3 goes to the smaller. Of four actions, ε = 0.2 gives 0.05 to each."""
    assert action_probabilities(LOGITS, parse_act(word)).numpy() == pytest.approx(np.array(wanted))


def test_temperatures_by_hand() -> None:
    """At temperature ½ logits count twice: e⁰ : e⁴ : e² : e⁴."""
    weights = np.exp([0, 4, 2, 4])
    halved = action_probabilities(LOGITS, parse_act("temperature=0.5")).numpy()
    assert halved[0] == pytest.approx(weights / weights.sum())
    plain = action_probabilities(LOGITS, Act())
    assert torch.equal(plain, torch.softmax(LOGITS, -1))
    assert action_probabilities(LOGITS, Act("softmax", 1.0000001)).numpy() == pytest.approx(plain.numpy(), abs=1e-6)


def test_limits_of_the_temperature() -> None:
    """Near 0 it is the argmax where there is no tie, however large the logits; at a large one it is uniform."""
    logits = torch.tensor([[1e36, 3e36, 2e36]])
    assert action_probabilities(logits, parse_act("temperature=1e-6")).tolist() == [[0, 1, 0]]
    warm = action_probabilities(LOGITS, parse_act("temperature=1e6")).numpy()
    assert warm == pytest.approx(np.full((2, 4), 0.25), abs=1e-5)


@pytest.mark.parametrize("word", ["softmax", "temperature=0.3", "argmax", "epsilon=0.3"])
def test_the_actions_may_be_any_dimension(word: str) -> None:
    logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    along = action_probabilities(logits, parse_act(word), dim=1)
    assert torch.allclose(along, action_probabilities(logits.movedim(1, -1), parse_act(word)).movedim(-1, 1))
    assert torch.allclose(along.sum(dim=1), torch.ones(3, 7))
