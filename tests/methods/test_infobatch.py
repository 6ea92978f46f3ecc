"""The mean rule (Eq. 3, 8) and its other side (table 5)."""

import numpy as np
import pytest

from infobatch import methods
from infobatch.core.plan import generator
from infobatch.methods import Epoch
from infobatch.methods.infobatch import MeanRule

MIDDLE = Epoch(index=2, pruning=range(1, 5), num_epochs=6, pruned_before=0)
SCORES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 3.0, 4.0, 5.5], np.float32)  # mean 1.75


def weights(method, scores=SCORES):
    return method.select(scores, MIDDLE, generator(0, 2)).of(np.arange(len(scores)))


def test_the_card():
    info = methods.info("infobatch")
    assert info is MeanRule.info
    assert (info.unbiased, info.anneals) == (True, True)
    assert "Eq. 3" in info.reference


@pytest.mark.parametrize(
    ("condition", "open_to_pruning", "pruned", "weight"),
    [("below", slice(0, 5), 2, 5 / 3), ("above", slice(5, 8), 1, 3 / 2)],
)
def test_one_side_of_the_mean_is_pruned_and_stands_in_for_itself(condition, open_to_pruning, pruned, weight):
    found = weights(MeanRule(0.5, condition=condition))
    side = found[open_to_pruning].tolist()
    assert side.count(0) == pruned
    assert set(side) == {0, weight}
    assert np.all(np.delete(found, np.r_[open_to_pruning]) == 1)


@pytest.mark.parametrize(("low", "pruned", "weight"), [(1, 0, 1.0), (2, 1, 2.0), (3, 1, 1.5), (5, 2, 5 / 3)])
def test_the_weight_is_size_over_kept_and_not_one_over_one_minus_ratio(low, pruned, weight):
    """With n = 3 and r = 0.5 the official code keeps 1 and weighs it 2: 2/3 of what it should be."""
    found = weights(MeanRule(0.5), np.array([0.0] * low + [9.0], np.float32))
    assert (found == 0).sum() == pruned
    assert set(found[:low]) - {0.0} == {weight}
    assert found[low] == 1


@pytest.mark.parametrize("condition", ["below", "above"])
def test_equal_scores_prune_nothing(condition):
    assert set(weights(MeanRule(0.9, condition=condition), np.full(7, 0.1, np.float32))) == {1.0}


def test_a_score_just_below_the_mean_is_below_it():
    """The mean lies between two float32 neighbours: it is not rounded to one of them."""
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2))
    found = weights(MeanRule(0.5), np.array([low, low, high, high], np.float32))
    assert sorted(found[:2]) == [0, 2]
    assert found[2:].tolist() == [1, 1]


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.7])
def test_ratio_is_the_share_pruned(ratio):
    scores = np.append(np.zeros(1000), [1e6]).astype(np.float32)
    assert (weights(MeanRule(ratio), scores) == 0).sum() == 1000 * ratio


def test_without_rescaling_all_weigh_one():
    assert set(weights(MeanRule(0.5, rescale=False))) == {0.0, 1.0}


def test_expected_saving_is_that_of_exponential_losses():
    scores = np.random.default_rng(0).exponential(size=100_000).astype(np.float32)
    for condition in ("below", "above"):
        method = MeanRule(0.5, condition=condition)
        pruned = np.mean(weights(method, scores) == 0)
        assert method.expected_saving(range(1, 8), 10) == pytest.approx(pruned * 7 / 10, abs=0.005)


def test_options_and_wrong_ones():
    assert MeanRule(0.3).options() == {
        "ratio": 0.3,
        "condition": "below",
        "saving": None,
        "rescale": True,
        "strata": None,
    }
    with pytest.raises(ValueError, match=r'condition must be "below" or "above".*got .mean.'):
        MeanRule(condition="mean")
    with pytest.raises(ValueError, match="ratio must lie in"):
        MeanRule(1.0)
