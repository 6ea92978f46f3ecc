"""Scores of every epoch in a byte each: how exact, for how long, and through any interruption."""

from __future__ import annotations

import io
import logging
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch
from infobatch.core.history import NO_SCORE, NOT_TRAINED, ScoreHistory, decode, encode

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
ERROR, SIGNED_ERROR = 10 ** (6 / 252) - 1, 10 ** (6 / 125) - 1  # half a step


@given(st.lists(FLOATS, min_size=1, max_size=50))
def test_a_byte_is_as_near_as_half_a_step(values: list[float]) -> None:
    scores = np.array(values, np.float32)
    codes, signed = encode(scores)
    back = decode(codes, signed)
    known = np.isfinite(scores)
    assert (codes != NOT_TRAINED).all()
    assert ((codes == NO_SCORE) == ~known).all()
    assert np.isnan(back[~known]).all()
    exact, stored = scores[known].astype(np.float64), back[known].astype(np.float64)
    assert signed == (exact < 0).any()
    clipped = np.sign(exact) * np.minimum(np.abs(exact), 1e6)
    allowed = np.abs(clipped) * (SIGNED_ERROR if signed else ERROR) * 1.00001 + 1e-6
    assert (np.abs(stored - clipped) <= allowed).all()
    assert (np.sign(stored) * np.sign(exact) >= 0).all()


@given(st.lists(st.floats(-1e7, 1e7, width=32), min_size=2, max_size=50))
def test_the_order_is_kept_and_storing_twice_changes_nothing(values: list[float]) -> None:
    scores = np.sort(np.array(values, np.float32))
    codes, signed = encode(scores)
    stored = decode(codes, signed)
    assert (np.diff(stored) >= 0).all()
    again, still = encode(stored)
    if still == signed:
        assert (again == codes).all()


class Reference:
    """The last epochs as plain dictionaries."""

    def __init__(self, rows: int) -> None:
        self.rows, self.epochs = rows, {}

    def write(self, epoch: int, trained: list[int], scores: np.ndarray) -> None:
        self.epochs = {e: kept for e, kept in self.epochs.items() if epoch - self.rows < e < epoch}
        self.epochs[epoch] = {i: float(scores[i]) for i in trained}


@given(st.data(), st.integers(1, 4), st.integers(1, 5))
def test_the_ring_holds_the_last_epochs(data: st.DataObject, rows: int, size: int) -> None:
    history, reference = ScoreHistory(rows, size), Reference(rows)
    epoch = -1
    for _ in range(data.draw(st.integers(1, 12))):
        epoch = data.draw(st.sampled_from([epoch + 1, max(epoch, 0), max(epoch - 2, 0)]))  # also back to an earlier one
        trained = data.draw(st.lists(st.integers(0, size - 1), unique=True))
        scores = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 100.0]), min_size=size, max_size=size)), "f4")
        history.write(epoch, np.array(trained, np.int64), scores)
        reference.write(epoch, trained, scores)
        assert history.epochs_known() == sorted(reference.epochs)
        for known, expected in reference.epochs.items():
            stored = history.of(known)
            assert {i: v for i, v in enumerate(stored.tolist()) if v == v} == pytest.approx(expected, rel=1e-3)
            assert (history.codes_of(known) != NOT_TRAINED).sum() == len(expected)


def test_a_late_batch_is_added_to_its_epoch() -> None:
    history = ScoreHistory(2, 4)
    history.write(0, np.array([0, 1]), np.array([1, 1, 0, 0], np.float32))
    history.amend(0, np.array([2]), np.array([9, 9, -100, 0], np.float32))
    assert history.of(0)[:3].tolist() == pytest.approx([1, 1, -100], rel=SIGNED_ERROR)
    assert np.isnan(history.of(0)[3])
    history.amend(7, np.array([3]), np.zeros(4, np.float32))  # which is not here any more
    assert history.epochs_known() == [0]


# -- in a run ----------------------------------------------------------------------------------------------------------


def make(history: bool | int = True, **options: Any) -> tuple[InfoBatch, DataLoader]:
    options = {"num_epochs": 5, "seed": 3, **options}
    data = InfoBatch(TensorDataset(torch.arange(23.0)), history=history, **options)
    return data, DataLoader(data, batch_size=4, sampler=data.sampler)


def loss_of(samples: torch.Tensor, epoch: int) -> torch.Tensor:
    return torch.sin(samples * 7 + epoch).abs()


def train(data: InfoBatch, loader: DataLoader, until: tuple[int, int]) -> None:
    """Go on until an epoch has had so many steps."""
    for epoch in range(data.epoch, until[0] + 1):
        data.set_epoch(epoch)
        for samples, *index in loader:
            data.update(loss_of(samples, epoch), *index)
            if (epoch, data.batches_done) == until:
                return


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def expected_rows(history: int) -> dict[int, dict[int, float]]:
    """What each epoch trained, by the plans alone."""
    data, loader = make(False)
    rows = {}
    for epoch in range(5):
        data.set_epoch(epoch)
        for (samples,) in loader:
            data.update(loss_of(samples, epoch))
        rows[epoch] = {int(i): float(data.scores[i]) for i in data.plan.indices}
    return {epoch: rows[epoch] for epoch in sorted(rows)[-history:]}


@pytest.mark.parametrize("history", [True, 2, 50])
def test_every_epoch_is_kept_as_it_was(history: bool | int) -> None:
    data, loader = make(history)
    train(data, loader, (4, 99))
    data.set_epoch(5)
    rows = expected_rows(5 if history is True else history)
    kept = data._run.score_history
    assert kept is not None
    assert kept.epochs_known() == sorted(rows)
    for epoch, expected in rows.items():
        stored = {i: v for i, v in enumerate(kept.of(epoch).tolist()) if v == v}
        assert stored == pytest.approx(expected, rel=ERROR, abs=1e-6)
    assert len(rows[3]) < 23  # something was left out


@settings(max_examples=25)
@given(
    stop=st.tuples(st.integers(0, 4), st.integers(1, 6)),
    history=st.sampled_from([True, 2]),
    index=st.booleans(),
    stay=st.booleans(),
)
def test_resumed_anywhere_it_is_the_history_of_the_uninterrupted_run(
    stop: tuple[int, int], history: bool | int, index: bool, stay: bool
) -> None:
    options = {"index_key": "index"} if index else {}
    whole, loader = make(history, **options)
    train(whole, loader, (4, 99))
    first, loader = make(history, **options)
    train(first, loader, stop)
    second, loader = make(history, **options)
    second.load_state_dict(through_a_file(first.state_dict()), stay=stay)
    if stay and second.position[0] == second.position[1]:
        second.set_epoch(second.epoch + 1)
    train(second, loader, (4, 99))
    for run in (whole, second):
        run.set_epoch(5)
    one, other = whole.state_dict()["score history"], second.state_dict()["score history"]
    assert {name: value.tolist() for name, value in one.items()} == {
        name: value.tolist() for name, value in other.items()
    }
    assert whole.table()["times_trained"].tolist() == second.table()["times_trained"].tolist()


def test_states_with_and_without_a_history_load_into_each_other() -> None:
    kept, loader = make(True)
    train(kept, loader, (2, 99))
    state = kept.state_dict()
    assert state["version"] == 3
    without, other = make(False)
    without.load_state_dict(state)  # its history is dropped
    assert "score history" not in without.state_dict()
    train(without, other, (3, 99))
    late, _ = make(True)
    late.load_state_dict(without.state_dict())  # begins with the epoch that the state had done
    assert late._run.score_history.epochs_known() == [3]
    shorter, _ = make(2)
    shorter.load_state_dict(state)  # the last ones that there is room for
    assert shorter._run.score_history.epochs_known() == [1, 2]
    longer, _ = make(True, num_epochs=9)
    longer.load_state_dict(state)
    assert longer._run.score_history.epochs_known() == [0, 1, 2]


@pytest.mark.parametrize("part", ["codes", "epochs", "signed"])
def test_a_damaged_history_is_refused(part: str) -> None:
    data, loader = make(True)
    train(data, loader, (1, 99))
    state = data.state_dict()
    state["score history"][part] = state["score history"][part][..., :1]
    with pytest.raises(ValueError, match=r"score history\.|damaged"):
        make(True)[0].load_state_dict(state)


def test_without_it_nothing_is_kept() -> None:
    data, loader = make(False)
    train(data, loader, (2, 99))
    assert data._run.score_history is None
    assert "score history" not in data.state_dict()
    assert "history" not in repr(data)


def test_its_memory_is_said_before(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "infobatch"):
        data = InfoBatch(range(5000), 40, history=True)
    assert "40 epochs of 5000 samples take 200.0 kB" in caplog.text
    assert "history of 40 epochs in 200.0 kB" in repr(data)
    assert data._run.score_history.codes.nbytes == 200_000


@pytest.mark.parametrize(
    ("history", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), ("all", TypeError)]
)
def test_a_wrong_number_of_epochs_is_named(history: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"history must be .*the number of last epochs to keep; True keeps all, False none"):
        make(history)


def test_a_loss_that_is_not_finite_does_not_look_like_a_sample_that_was_left_out() -> None:
    data, loader = make(True)
    for (samples,) in loader:
        data.update(torch.where(samples == 3, torch.nan, samples))
    with pytest.warns(RuntimeWarning, match="NaN or infinite"):
        data.set_epoch(1)
    table = data.table()
    assert table["times_trained"].tolist() == [1] * 23
    assert np.isnan(table["mean"][3])
