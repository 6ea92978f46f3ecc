"""Sizes, classes, ties, and the way to a file and to a dataset."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from infobatch.static import Selection
from infobatch.static.selection import count_of, highest, shares


def test_a_float_is_a_share_and_a_whole_number_a_count() -> None:
    assert [count_of(size, 10) for size in (0.5, 1.0, 0.01, 1, 10, np.int64(3), np.float32(0.5))] == [
        5,
        10,
        1,
        1,
        10,
        3,
        5,
    ]


@pytest.mark.parametrize("size", [0, 11, -1, 0.0, 1.5, float("nan"), True, "half", None])
def test_a_wrong_size_is_named(size: object) -> None:
    with pytest.raises(ValueError, match=r"size must be"):
        count_of(size, 10)


@pytest.mark.parametrize("count", range(1, 38))
def test_every_class_keeps_its_share_to_within_one(count: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat([0, 3, 7], [5, 12, 20]))
    groups = shares(labels, count)
    assert sum(few for _, few in groups) == count
    for members, few in groups:
        assert len(set(labels[members])) == 1
        assert abs(few - count * len(members) / 37) < 1
        assert few <= len(members)


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.data())
def test_every_class_gets_one_where_the_count_allows_and_shares_the_rest(sizes: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, sum(sizes)))
    few = [k for _, k in shares(np.repeat(np.arange(len(sizes)), sizes), count)]
    assert sum(few) == count
    assert all(k <= size for k, size in zip(few, sizes, strict=True))
    one: set[int] = set()  # classes whose share of what the others leave is at most one sample
    while count >= len(sizes):
        free = sum(size for number, size in enumerate(sizes) if number not in one)
        share = {n: Fraction((count - len(one)) * sizes[n], free) for n in range(len(sizes)) if n not in one}
        if not any(value < 1 for value in share.values()):
            break
        one |= {n for n, value in share.items() if value <= 1}
    else:
        share = {n: Fraction(count * size, sum(sizes)) for n, size in enumerate(sizes)}
    assert all(few[n] == 1 for n in one)
    assert all(abs(few[n] - value) < 1 for n, value in share.items())
    if count >= len(sizes):
        assert min(few) >= 1


def test_ties_are_broken_by_chance_and_not_by_position() -> None:
    scores = np.array([1.0] * 50 + [2.0])
    draws = {tuple(highest(scores, 11, np.random.default_rng(seed)).tolist()) for seed in range(20)}
    assert len(draws) == 20
    assert all(draw[0] == 50 for draw in draws)
    assert max(max(draw[1:]) for draw in draws) > 40


def test_to_a_file_and_back(tmp_path: Path) -> None:
    selection = Selection(np.array([2, 5]), np.array([3.0, 4.0]))
    selection.save(tmp_path / "chosen")  # the name is the user's: nothing is appended
    again = Selection.load(tmp_path / "chosen")
    assert (again.indices.tolist(), again.weights.tolist()) == ([2, 5], [3, 4])


def test_a_subset_holds_the_selected_samples() -> None:
    selection = Selection(np.array([2, 5]), np.ones(2))
    assert [int(x) for (x,) in selection.subset(TensorDataset(torch.arange(6)))] == [2, 5]
    with pytest.raises(ValueError, match="dataset has 5 samples, but sample 5 was selected"):
        selection.subset(TensorDataset(torch.arange(5)))
