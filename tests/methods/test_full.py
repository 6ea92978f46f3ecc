"""No pruning."""

import numpy as np
import pytest

from infobatch import InfoBatch, methods
from infobatch.methods import Epoch
from infobatch.methods.full import Full


def test_all_samples_weigh_one_and_no_chance_is_asked_for():
    weights = Full().select(np.array([1, np.nan, 3], np.float32), Epoch(1, range(1, 3), 4, 0), rng=None)
    assert weights.uniform
    assert weights.of(np.arange(3)).tolist() == [1, 1, 1]


def test_nothing_is_saved():
    assert Full().expected_saving(range(1, 9), 10) == 0
    assert Full().options() == {}
    assert methods.info("full") is Full.info
    assert Full.info.unbiased


@pytest.mark.parametrize("option", [{"saving": 0.3}, {"ratio": 0.3}, {"rescale": True}, {"strata": [0, 1, 1]}])
def test_what_has_no_meaning_here_is_refused(option):
    (name,) = option
    with pytest.raises(TypeError, match=f"method 'full' has no option '{name}'"):
        InfoBatch(range(3), num_epochs=2, method="full", **option)
