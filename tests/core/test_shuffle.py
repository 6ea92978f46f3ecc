"""A uniform shuffle by buckets."""

import itertools
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from infobatch.core import shuffle, threads
from infobatch.core.plan import generator
from infobatch.core.shuffle import Order


def in_random_order(indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return shuffle.in_random_order(indices, rng)[:]


SMALL = 1 << 18
LARGE = SMALL + 70_001  # goes through the buckets, with a short last chunk


@pytest.fixture(autouse=True)
def _buckets_from_smaller_sizes_on(monkeypatch):
    monkeypatch.setattr(shuffle, "_SMALL", SMALL)
    monkeypatch.setattr(shuffle, "_BUCKET", 1 << 11)


@pytest.mark.parametrize("size", [0, 1, 2, 1000, SMALL, SMALL + 1, LARGE])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_nothing_is_lost_or_doubled(size, dtype):
    indices = np.arange(5, size + 5, dtype=dtype)
    shuffled = in_random_order(indices.copy(), generator(0, 1))
    assert shuffled.dtype == dtype
    assert np.array_equal(np.sort(shuffled), indices)
    assert size < 3 or not np.array_equal(shuffled, indices)


@pytest.mark.parametrize("small", [100, 0], ids=["at once", "by buckets"])
def test_every_order_is_equally_likely(monkeypatch, small):
    monkeypatch.setattr(shuffle, "_SMALL", small)
    monkeypatch.setattr(shuffle, "_CHUNK", 3)  # the bucket of an entry does not depend on its chunk
    monkeypatch.setattr(shuffle, "_BUCKET", 1)
    rng = generator(2, 1)
    orders = Counter(tuple(in_random_order(np.arange(4), rng).tolist()) for _ in range(6_000))
    assert set(orders) == set(itertools.permutations(range(4)))
    assert 1e-3 < stats.chisquare(list(orders.values())).pvalue < 1 - 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_entries_of_large_arrays_go_anywhere_alike(seed):
    """From every 32nd part of the array to every 32nd part, equally many."""
    shuffled = in_random_order(np.arange(LARGE), generator(seed, 1))
    part = np.arange(LARGE) * 32 // LARGE
    counts = np.histogram2d(part, part[shuffled], bins=32)[0]
    assert 1e-3 < stats.chi2_contingency(counts).pvalue < 1 - 1e-3


@pytest.mark.parametrize("size", [1000, LARGE])
def test_neighbours_are_parted(size):
    """The distance in the result of two entries that were neighbours is that of two independent places."""
    place = np.argsort(in_random_order(np.arange(size), generator(1, 1)))
    correlation = np.corrcoef(place[:-1], place[1:])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(size)


@pytest.mark.parametrize("size", [1000, LARGE])
def test_the_order_is_given_by_the_generator_alone(size):
    before = torch.get_rng_state()
    one = in_random_order(np.arange(size), generator(4, 2))
    torch.rand(3)
    two = in_random_order(np.arange(size), generator(4, 2))
    other = in_random_order(np.arange(size), generator(4, 3))
    torch.set_rng_state(before)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_torchs_global_generator_is_left_alone():
    before = torch.get_rng_state()
    in_random_order(np.arange(1000), generator(0, 0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("size", [1000, LARGE])
def test_the_users_default_device_does_not_matter(size):
    """As after torch.set_default_device("cuda"), by the one other device every machine has."""
    plain = in_random_order(np.arange(size), generator(4, 2))
    with torch.device("meta"):
        assert np.array_equal(in_random_order(np.arange(size), generator(4, 2)), plain)


def test_threads_do_not_change_the_order(monkeypatch):
    """Large arrays are shuffled by several threads; each chunk and bucket has a seed of its own."""
    monkeypatch.setattr(shuffle, "_SMALL", 0)
    monkeypatch.setattr(threads, "_LARGE", 0)
    before, orders = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            orders.append(in_random_order(np.arange(200_000, dtype=np.int32), np.random.default_rng(0)))
    finally:
        torch.set_num_threads(before)
    assert sorted(orders[0].tolist()) == list(range(200_000))
    assert (orders[0] == orders[1]).all()
    assert (orders[0] == orders[2]).all()


@given(data=st.data())
def test_what_is_asked_for_first_does_not_change_the_order(data):
    """Buckets are put in order when their entries are first wanted."""
    size = data.draw(st.integers(1, 400))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "_SMALL", 0)
        patch.setattr(shuffle, "_BUCKET", 20)
        patch.setattr(shuffle, "_CHUNK", 64)
        whole = in_random_order(np.arange(size, dtype=np.int32), generator(3, 1))
        order = shuffle.in_random_order(np.arange(size, dtype=np.int32), generator(3, 1))
    place = st.one_of(st.none(), st.integers(-size - 1, size + 1))
    for _ in range(4):
        wanted = slice(data.draw(place), data.draw(place), data.draw(st.sampled_from([None, 1, 2, 7, -1, -3])))
        assert np.array_equal(order[wanted], whole[wanted])
        assert np.array_equal(pickle.loads(pickle.dumps(order))[wanted], whole[wanted])


def test_an_order_cannot_be_changed():
    order = Order(np.arange(4))
    with pytest.raises(ValueError, match="read-only"):
        order[:2][0] = 3


def test_threads_that_read_at_once_find_one_order(monkeypatch):
    """A loader in a thread of its own takes indices while the training step looks up its weights."""
    monkeypatch.setattr(shuffle, "_SMALL", 0)
    whole = in_random_order(np.arange(300_000, dtype=np.int32), generator(3, 1))
    for _ in range(5):
        order = shuffle.in_random_order(np.arange(300_000, dtype=np.int32), generator(3, 1))
        with ThreadPoolExecutor(4) as pool:
            pieces = [slice(start, start + 30_000) for start in range(0, 300_000, 30_000)]
            parts = pool.map(order.__getitem__, pieces)
            assert np.array_equal(np.concatenate(list(parts)), whole)
        assert np.array_equal(order[:], whole)
