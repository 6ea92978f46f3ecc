import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobatch.stream.bins import bin_of
from infobatch.stream.hashing import stable_hash
from infobatch.stream.ids import BYTES_PER_SLOT, UNKNOWN, Ids


def hashed(numbers: range) -> np.ndarray:
    return np.array([stable_hash(number) for number in numbers])


def test_losses_are_found_again_by_id() -> None:
    ids, names = Ids(1 << 16), hashed(range(500))
    losses = np.geomspace(0.01, 10, 500)
    assert set(ids.bins(names)) == {UNKNOWN}
    ids.book(names, losses)
    known = ids.bins(names)
    assert np.count_nonzero(known != UNKNOWN) == ids.held == 500 - ids.collisions
    assert np.all(known[known != UNKNOWN] == bin_of(losses)[known != UNKNOWN])
    assert [ids.find(int(name)) for name in names] == known.tolist()
    ids.book(names, 3 * losses)
    assert np.all(ids.bins(names)[known != UNKNOWN] == bin_of(2 * losses)[known != UNKNOWN])


@given(st.integers(1, 40), st.lists(st.integers(0, 60), min_size=1, max_size=200))
def test_an_id_is_never_taken_for_another(slots: int, numbers: list[int]) -> None:
    ids = Ids(slots)
    for start in range(0, len(numbers), 7):
        part = numbers[start : start + 7]
        ids.book(np.array([stable_hash(n) for n in part]), np.array([2.0**n for n in part]))
    for number in range(61):
        where = ids.find(stable_hash(number))
        assert where in (UNKNOWN, bin_of(np.array([2.0**number]))[0])
    assert ids.held <= slots


def test_the_first_id_stays_until_eight_others_came() -> None:
    ids = Ids(1)
    ids.book(np.array([10]), np.array([1.0]))
    for other in range(7):
        ids.book(np.array([20 + other]), np.array([2.0]))
        assert ids.find(10) != UNKNOWN
    ids.book(np.array([99]), np.array([2.0]))
    assert ids.find(10) == UNKNOWN
    assert ids.find(99) == bin_of(np.array([2.0]))[0]
    assert ids.collisions == 8


def test_an_id_that_comes_back_keeps_its_slot() -> None:
    ids = Ids(1)
    for _ in range(5):
        ids.book(np.array([10]), np.array([1.0]))
        ids.book(np.arange(20, 26), np.full(6, 2.0))
        assert ids.find(10) != UNKNOWN


def test_a_slot_takes_the_bytes_that_are_stated() -> None:
    ids = Ids(1 << 12)
    assert ids._rows.array.nbytes + ids._average.nbytes == BYTES_PER_SLOT << 12


def test_a_state_brings_everything_back() -> None:
    ids, other, names = Ids(64), Ids(64), hashed(range(50))
    ids.book(names, np.linspace(1, 5, 50))
    other.load(ids.state())
    assert other.bins(names).tolist() == ids.bins(names).tolist()
    assert (other.collisions, other.held) == (ids.collisions, ids.held)
    assert other._average.tolist() == pytest.approx(ids._average.tolist())
