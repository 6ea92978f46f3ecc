"""The score table (Eq. 4)."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infobatch.core.scores import ScoreTable

NAN, INF = math.nan, math.inf


def write(table, scores, dtype=torch.float32):
    """Book a dict of {index: score}."""
    table.write(torch.tensor(list(scores)), torch.tensor(list(scores.values()), dtype=dtype))


def same(values, expected):
    np.testing.assert_array_equal(values, np.array(expected, np.float32))


def test_unknown_at_first_then_the_last_score_and_the_others_keep_theirs():
    table = ScoreTable(4)
    assert len(table) == 4
    same(table.numpy(), [NAN] * 4)
    write(table, {2: 1.5, 0: 0.25})
    same(table.numpy(), [0.25, NAN, 1.5, NAN])
    write(table, {2: 0.5, 3: 3.0})
    same(table.numpy(), [0.25, NAN, 0.5, 3.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_float32_whatever_the_loss(dtype):
    table = ScoreTable(50_000)
    loss = torch.rand(3, dtype=torch.float64).to(dtype)
    table.write(torch.tensor([49_999, 0, 33_333]), loss)
    assert table.values.dtype == torch.float32
    assert table.values[[49_999, 0, 33_333]].tolist() == loss.to(torch.float32).tolist()
    assert int(table.values.isfinite().sum()) == 3


def test_an_index_that_no_float32_can_name():
    """Defect 3 of the official code: indices near 2**25 in float32."""
    table = ScoreTable(2**25 + 8)
    index = torch.tensor([2**25 + 1, 2**25 + 3, 2**24 + 1])
    table.write(index, torch.tensor([1.0, 2.0, 3.0]))
    assert table.values[index].tolist() == [1, 2, 3]
    assert int(table.values.isfinite().sum()) == 3


@settings(deadline=None, derandomize=True)
@given(
    momentum=st.floats(0.01, 1),
    rounds=st.lists(st.dictionaries(st.integers(0, 4), st.floats(0, 100, width=32), min_size=1), max_size=8),
)
def test_moving_average(momentum, rounds):
    table, expected = ScoreTable(5, momentum), [NAN] * 5
    for scores in rounds:
        write(table, scores)
        for i, new in scores.items():
            old = new if math.isnan(expected[i]) else expected[i]
            expected[i] = momentum * new + (1 - momentum) * old
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-5)


def test_momentum_one_keeps_the_last_score_exactly():
    table = ScoreTable(1)
    for score in (0.1, 7.3, 1e-20, 3e38):
        write(table, {0: score})
        same(table.numpy(), [score])


@pytest.mark.parametrize("momentum", [1.0, 0.5])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_never_enters_and_is_counted(bad, momentum):
    """Defect 8 of the official code: one inf or NaN spoils every later mean."""
    table = ScoreTable(3, momentum)
    write(table, {0: 1.0, 1: bad})
    same(table.numpy(), [1.0, NAN, NAN])
    write(table, {0: bad, 1: 2.0, 2: bad})
    same(table.numpy(), [1.0, 2.0, NAN])
    assert int(table.rejected) == 3


def test_a_float64_beyond_float32_is_not_finite_here():
    table = ScoreTable(1)
    write(table, {0: 1e300}, torch.float64)
    same(table.numpy(), [NAN])
    assert int(table.rejected) == 1


def test_the_scores_tensor_is_left_alone_and_not_kept_alive_by_a_graph():
    table, loss = ScoreTable(2), torch.tensor([1.0, NAN], requires_grad=True)
    table.write(torch.tensor([0, 1]), loss)
    assert not table.values.requires_grad
    same(loss.detach().numpy(), [1.0, NAN])


def test_rejected_losses_are_reported_once():
    table = ScoreTable(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.warn_once_of_rejected()
        write(table, {0: NAN, 1: INF})
        with pytest.raises(RuntimeWarning, match="2 loss values were NaN or infinite: they were not stored"):
            table.warn_once_of_rejected()
        write(table, {0: NAN})
        table.warn_once_of_rejected()


def test_host_memory_is_shared_and_moving_to_the_same_device_is_free():
    table = ScoreTable(3)
    values = table.values
    table.move_to(torch.device("cpu"))
    assert table.values is values
    write(table, {1: 4.0})
    assert np.shares_memory(table.numpy(), values.numpy())


def test_moving_takes_table_and_count_along():
    table = ScoreTable(3)
    table.move_to(torch.device("meta"))
    assert table.values.device.type == table.rejected.device.type == "meta"
