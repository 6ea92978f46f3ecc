"""Arrays are checked once, and errors say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infobatch.static import Collected

ARRAYS = {
    "features": np.arange(12.0).reshape(4, 3),
    "logits": np.arange(8.0).reshape(4, 2),
    "labels": np.array([0, 1, 1, 0]),
    "correct": np.array([[1, 0, 1, -1], [0, 0, 1, -1]], np.int8),
    "distances": np.array([1.0, 2.0, np.inf, 4.0]),
}


def test_take_and_save_keep_every_array(tmp_path: Path) -> None:
    data = Collected(**ARRAYS, bias=False)
    assert len(data) == 4
    data.save(tmp_path / "arrays.npz")
    again = Collected.load(tmp_path / "arrays.npz")
    some = again.take(np.array([2, 0]))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(getattr(again, name), array)
        expected = array[:, [2, 0]] if name == "correct" else array[[2, 0]]
        np.testing.assert_array_equal(getattr(some, name), expected)
    assert not some.bias


def test_dynamics_alone_are_enough_for_forgetting() -> None:
    assert len(Collected(correct=ARRAYS["correct"])) == 4


@pytest.mark.parametrize(
    ("arrays", "error", "text"),
    [
        ({}, ValueError, "no array"),
        ({**ARRAYS, "labels": np.zeros(3, int)}, ValueError, r"row per sample.*'labels': 3"),
        ({"features": np.zeros(3)}, ValueError, r"features must have 2 axes, got the shape \(3,\)"),
        ({"labels": np.zeros(3)}, TypeError, "labels must be whole numbers.*float64"),
        ({"logits": np.array([[0, 1], [0, np.nan]])}, ValueError, "logits must be finite.*sample 1"),
        ({"features": np.array([[np.inf]])}, ValueError, "features must be finite.*sample 0"),
        ({"distances": np.array([np.inf, np.nan])}, ValueError, "distances.*sample 1"),
        ({**ARRAYS, "labels": np.array([0, 1, 2, 0])}, ValueError, r"labels must lie in 0\.\.1.*got 0\.\.2"),
        ({**ARRAYS, "labels": np.array([0, 1, -1, 0])}, ValueError, r"labels must lie in 0\.\.1.*got -1\.\.1"),
    ],
)
def test_wrong_arrays_are_named(arrays: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Collected(**arrays)


def test_another_file_is_not_taken_for_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", indices=np.arange(3))
    with pytest.raises(ValueError, match=r"not a file of collected arrays: it holds \['indices'\]"):
        Collected.load(tmp_path / "other.npz")
