"""The one rule for ``ratio``."""

import math

import pytest

from infobatch.methods.ratio import checked_ratio


@pytest.mark.parametrize("ratio", [0, 0.0, 0.5, 0.999])
def test_shares_are_taken_as_floats(ratio):
    assert checked_ratio(ratio) == ratio
    assert isinstance(checked_ratio(ratio), float)


@pytest.mark.parametrize("ratio", [-0.1, -1, 1, 1.0, 3, math.nan, math.inf, True, "0.5", None])
def test_everything_else_is_refused_and_named(ratio):
    """Defect 9 of the official code: ratios of -1 or 3 are clamped in silence."""
    with pytest.raises(ValueError, match=r"ratio must lie in \[0, 1\)") as error:
        checked_ratio(ratio)
    assert repr(ratio) in str(error.value)
    assert "the paper uses 0.5" in str(error.value)
