"""Which epochs are pruned (Eq. 10)."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from infobatch.core.anneal import pruning_epochs


@pytest.mark.parametrize(
    ("num_epochs", "delta", "warmup", "expected"),
    [
        (8, 0.875, 0, range(1, 7)),  # δ·C = 7 is whole: epoch 7 is full
        (10, 0.875, 0, range(1, 9)),  # δ·C = 8.75: epoch 8 < 8.75 is still pruned
        (100, 0.07, 0, range(1, 7)),  # 0.07 * 100 is 7.000000000000001 in floats
        (100, 0.29, 0, range(1, 29)),  # 0.29 * 100 is 28.999999999999996 in floats
        (300, 0.875, 20, range(20, 263)),  # the paper's Swin recipe
        (5, 1.0, 0, range(1, 5)),
        (5, 1, 1, range(1, 5)),
    ],
)
def test_known_cases(num_epochs, delta, warmup, expected):
    assert pruning_epochs(num_epochs, delta, warmup) == expected


@pytest.mark.parametrize(
    ("num_epochs", "delta", "warmup"), [(1, 1.0, 0), (10, 0.0, 0), (10, 0.1, 0), (10, 0.5, 5), (4, 1.0, 9)]
)
def test_nothing_is_pruned_where_no_epoch_is_left(num_epochs, delta, warmup):
    assert len(pruning_epochs(num_epochs, delta, warmup)) == 0


@settings(deadline=None, derandomize=True)
@given(
    num_epochs=st.integers(1, 400),
    thousandths=st.integers(0, 1000),
    warmup=st.integers(0, 30),
)
def test_agrees_with_the_reference(num_epochs, thousandths, warmup):
    delta = thousandths / 1000
    pruned = set(pruning_epochs(num_epochs, delta, warmup))
    expected = {t for t in range(num_epochs + 3) if reference.is_pruned(t, num_epochs, delta, warmup)}
    assert pruned == expected
    assert all(t < Fraction(thousandths, 1000) * num_epochs for t in pruned)
