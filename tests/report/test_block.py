"""Numbers rounded to few steps and packed, and how the page's script reads them back."""

from __future__ import annotations

import base64
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from infobatch.report.block import FEW_STEPS, STEPS, narrow_integers, pack, quantise, scale_of, tail_steps

VALUES = st.lists(st.floats(-1e6, 1e6, width=32) | st.just(float("nan")), min_size=1, max_size=40)


@given(VALUES, st.sampled_from([STEPS, FEW_STEPS]))
def test_a_step_is_as_near_as_half_its_neighbours(values: list[float], most: int) -> None:
    exact = np.array(values, np.float32)
    steps, about = quantise(exact, scale_of(exact), most)
    known = np.isfinite(exact)
    assert (steps[~known] == 0).all()
    assert (steps[known] >= 1).all()
    assert (steps <= most).all()
    bent = about["low"] + (about["high"] - about["low"]) * (steps[known].astype(float) - 1) / about["steps"]
    reach = (about["high"] - about["low"]) / about["steps"] / 2 + 1e-9
    assert (np.abs(bent - np.arcsinh(exact[known].astype(float) / about["scale"])) <= reach).all()


@given(VALUES)
def test_ranks_keep_their_order(values: list[float]) -> None:
    exact = np.array(values, np.float32)
    steps = tail_steps(exact).astype(int)
    known = np.flatnonzero(np.isfinite(exact))
    assert (steps[np.isnan(exact)] == 0).all()
    for i in known:
        for j in known:
            assert exact[i] <= exact[j] or steps[i] >= steps[j]


def test_the_top_60_of_a_million_have_different_steps() -> None:
    steps = tail_steps(np.arange(1_000_000.0))
    assert steps.dtype == np.uint16
    assert len(set(steps[-60:].tolist())) == 60


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_columns_come_back_from_the_block(numbers: list[int]) -> None:
    columns = {
        "one": narrow_integers(np.array(numbers)),
        "two": np.arange(3, dtype=np.uint16),
        "three": np.ones(2, np.uint8),
    }
    block, layout = pack(columns)
    content = np.frombuffer(zlib.decompress(base64.b64decode(block)), np.uint8)
    for part in layout:
        planes = content[part["at"] :][: part["count"] * part["bytes"]].reshape(part["bytes"], part["count"])
        back = sum(planes[k].astype(np.int64) << (8 * k) for k in range(part["bytes"]))
        assert np.array_equal(back, columns[part["name"]])
