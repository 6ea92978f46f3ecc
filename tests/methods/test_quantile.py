"""The quantile rule: the paper's 40 % preset, and any other list of levels."""

import numpy as np
import pytest

from infobatch import methods
from infobatch.core.plan import generator
from infobatch.methods import Epoch
from infobatch.methods.quantile import QuantileRule

MIDDLE = Epoch(index=2, pruning=range(1, 5), num_epochs=6, pruned_before=0)


def weights(method, scores):
    return method.select(np.asarray(scores, np.float32), MIDDLE, generator(0, 2)).of(np.arange(len(scores)))


def test_the_card():
    info = methods.info("infobatch-quantile")
    assert info is QuantileRule.info
    assert (info.unbiased, info.anneals) == (True, True)


def test_the_preset_keeps_a_quarter_half_and_all():
    scores = np.random.default_rng(0).permutation(1000)
    found = weights(QuantileRule(), scores)
    for low, high, kept, weight in [(0, 200, 50, 4.0), (200, 850, 325, 2.0), (850, 1000, 150, 1.0)]:
        part = found[(scores >= low) & (scores < high)]
        assert (part > 0).sum() == kept
        assert set(part) - {0.0} == {weight}
    assert QuantileRule().levels == ((0.2, 0.25), (0.85, 0.5))


def test_the_preset_announces_the_papers_saving():
    """52.5 % kept; with δ = 0.875 that is 41.6 % saved, less the first epoch."""
    method = QuantileRule()
    assert method.expected_saving(range(1000), 1000) == pytest.approx(0.475)
    assert method.expected_saving(range(875), 1000) == pytest.approx(0.415625)


@pytest.mark.parametrize(("ratio", "levels"), [(0.0, (1.0, 1.0)), (0.3, (0.49, 0.7)), (0.5, (0.25, 0.5))])
def test_ratio_scales_the_preset(ratio, levels):
    found = QuantileRule(ratio).levels
    assert [quantile for quantile, _ in found] == [0.2, 0.85]
    assert [keep for _, keep in found] == pytest.approx(levels)


def test_any_list_of_levels():
    found = weights(QuantileRule(levels=[(0.1, 0.5), (0.3, 1.0), (0.9, 0.25)]), range(1001))
    kept = [(found[a:b] > 0).sum() for a, b in [(0, 100), (100, 300), (300, 900), (900, 1001)]]
    assert kept == [50, 200, 150, 101]
    assert set(found[300:900]) == {0, 4}


@pytest.mark.parametrize("scores", [[0.1] * 20, [0.1] * 19 + [5.0]])
def test_ties_at_the_quantile_are_never_pruned(scores):
    assert set(weights(QuantileRule(), scores)) == {1.0}


def test_a_hundred_levels():
    levels = [((n + 1) / 101, 0.5) for n in range(100)]
    found = weights(QuantileRule(levels=levels), range(2020))
    assert found.sum() == 2020  # every group's survivors weigh as much as the group
    assert (found == 0).sum() == 1000


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [(0.0, 0.5)],
        [(1.0, 0.5)],
        [(0.5, 0.0)],
        [(0.5, 1.1)],
        [(0.85, 0.5), (0.2, 0.25)],
        [(0.2, 0.5), (0.2, 0.25)],
        [(float("nan"), 0.5)],
        [((n + 1) / 102, 0.5) for n in range(101)],
    ],
)
def test_wrong_levels_are_refused(wrong):
    with pytest.raises(ValueError, match=r"levels must be pairs .* the paper's preset is \(\(0\.2, 0\.25\)"):
        QuantileRule(levels=wrong)


def test_ratio_or_levels():
    with pytest.raises(ValueError, match="give ratio or levels, not both"):
        QuantileRule(0.4, levels=[(0.5, 0.5)])
    with pytest.raises(ValueError, match="ratio must lie in"):
        QuantileRule(-0.1)


def test_options():
    assert QuantileRule(rescale=False).options() == {
        "levels": ((0.2, 0.25), (0.85, 0.5)),
        "saving": None,
        "rescale": False,
        "strata": None,
    }
