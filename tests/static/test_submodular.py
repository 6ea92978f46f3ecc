"""CRAIG, graph cut and dataset quantization against the naive greedy on written-out vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from infobatch.static import craig, dq, graph_cut, greedy

N = 60
RNG = np.random.default_rng(0)
FEATURES, ERRORS = np.abs(RNG.normal(size=(N, 5))), RNG.normal(size=(N, 3))
GRADIENTS = np.einsum("nc,nd->ncd", ERRORS, np.concatenate([FEATURES, np.ones((N, 1))], 1)).reshape(N, -1)


def pairwise(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows[:, None] - rows, axis=2)


def similarity(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return (1 + unit @ unit.T) / 2


def assert_picks_of_the_naive_greedy(distances: np.ndarray, picks: np.ndarray) -> None:
    """Each pick makes the sum of distances as small as any sample could, to the last digits.

    Two samples that stand for themselves and each other gain exactly the same: ties are common here.
    """
    for number, pick in enumerate(picks):
        before = [*picks[:number]]
        sums = [np.inf if i in before else distances[[*before, i]].min(0).sum() for i in range(len(distances))]
        assert sums[pick] == pytest.approx(min(sums), rel=1e-12)


def cut(similar: np.ndarray, picks: list[int], penalty: float = 1.0) -> float:
    return float(similar[:, picks].sum() - penalty * similar[np.ix_(picks, picks)].sum())


def naive_graph_cut(similar: np.ndarray, count: int, penalty: float = 1.0) -> list[int]:
    picks: list[int] = []
    for _ in range(count):
        values = [-np.inf if i in picks else cut(similar, [*picks, i], penalty) for i in range(len(similar))]
        picks.append(int(np.argmax(values)))
    return picks


@pytest.mark.parametrize("rows", [FEATURES, GRADIENTS], ids=["features", "gradients"])
@pytest.mark.parametrize("held", [True, False])
def test_craig_picks_what_the_naive_greedy_picks(monkeypatch: pytest.MonkeyPatch, rows: np.ndarray, held: bool) -> None:
    if not held:
        monkeypatch.setattr(greedy, "EXACT", 10)
        monkeypatch.setattr(greedy, "COLUMNS", 7)
    errors = ERRORS if rows is GRADIENTS else None
    picks, weights = craig(FEATURES, 25, errors=errors, epsilon=0)
    assert_picks_of_the_naive_greedy(pairwise(rows), picks)
    nearest = picks[pairwise(rows)[picks].argmin(0)]
    assert weights.tolist() == [int((nearest == pick).sum()) for pick in picks]
    assert weights.sum() == N


def test_craig_with_drawn_candidates_is_almost_as_good_and_deterministic() -> None:
    rows = np.random.default_rng(1).normal(size=(400, 6))
    distances = pairwise(rows)
    sums = {}
    for epsilon in (0, 0.1, 0.5):
        picks, weights = craig(rows, 40, epsilon=epsilon, seed=3)
        assert len(set(picks.tolist())) == 40
        assert weights.sum() == 400
        assert weights.min() >= 1
        assert craig(rows, 40, epsilon=epsilon, seed=3)[0].tolist() == picks.tolist()
        sums[epsilon] = distances[picks].min(0).sum()
    random = np.mean(
        [distances[np.random.default_rng(s).choice(400, 40, replace=False)].min(0).sum() for s in range(9)]
    )
    assert sums[0] <= sums[0.1] < sums[0] + 0.2 * (random - sums[0])
    assert sums[0.5] < random


def test_craig_finds_the_same_when_the_candidates_of_one_pick_are_too_many_to_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, sizes = craig(FEATURES, 5, epsilon=0.1)
    monkeypatch.setattr(greedy, "COLUMNS", 4)  # 28 candidates a pick: both draw 28 of 60
    picks, again = craig(FEATURES, 5, epsilon=0.1)
    assert again.sum() == sizes.sum() == N
    best = pairwise(FEATURES)
    assert best[picks].min(0).sum() == pytest.approx(best[held].min(0).sum(), rel=0.1)


@pytest.mark.parametrize("epsilon", [0, 0.1])
def test_craig_lets_every_pick_stand_for_itself_even_among_equals(epsilon: float) -> None:
    picks, weights = craig(np.zeros((9, 2)), 9, epsilon=epsilon)
    assert sorted(picks.tolist()) == [*range(9)]
    assert weights.tolist() == [1] * 9


def test_craig_rejects_an_epsilon_that_looks_at_nobody() -> None:
    with pytest.raises(ValueError, match=r"epsilon must lie in \[0, 1\).*got 1"):
        craig(FEATURES, 3, epsilon=1)


@pytest.mark.parametrize("penalty", [0.01, 1.0, 3.0])
@pytest.mark.parametrize("rows", [FEATURES, GRADIENTS], ids=["features", "gradients"])
def test_graph_cut_picks_what_the_naive_greedy_picks(penalty: float, rows: np.ndarray) -> None:
    picks = graph_cut(FEATURES, 40, errors=ERRORS if rows is GRADIENTS else None, penalty=penalty)
    assert picks.tolist() == naive_graph_cut(similarity(rows), 40, penalty)


def test_graph_cut_with_drawn_candidates_is_almost_as_good() -> None:
    rows = np.abs(np.random.default_rng(1).normal(size=(400, 6)))
    similar = similarity(rows)
    exact = cut(similar, graph_cut(rows, 60).tolist())
    drawn = graph_cut(rows, 60, candidates=100, seed=2).tolist()
    assert len(set(drawn)) == 60
    assert drawn != graph_cut(rows, 60, candidates=100, seed=3).tolist()
    random = cut(similar, np.random.default_rng(2).choice(400, 60, replace=False).tolist())
    assert exact - cut(similar, drawn) < 0.1 * (exact - random)


def test_graph_cut_rejects_a_penalty_of_zero() -> None:
    with pytest.raises(ValueError, match=r"penalty must be above 0.*got 0"):
        graph_cut(FEATURES, 3, penalty=0)


def test_graph_cut_bears_a_feature_of_zero_and_takes_everything_if_asked() -> None:
    rows = np.concatenate([np.zeros((1, 3)), FEATURES[:10, :3]])
    assert sorted(graph_cut(rows, 11).tolist()) == [*range(11)]


def test_dq_samples_every_bin_alike() -> None:
    similar, rest, bins = similarity(FEATURES), np.arange(N), []
    for _ in range(4):
        picks = naive_graph_cut(similar[np.ix_(rest, rest)], N // 4)
        bins.append(set(rest[picks].tolist()))
        rest = np.delete(rest, picks)
    for seed, count in itertools.product(range(3), (20, 21)):
        chosen = set(dq(FEATURES, count, bins=4, seed=seed).tolist())
        assert len(chosen) == count
        assert sorted(len(chosen & members) for members in bins) == [5, 5, 5, 5 + count % 4]
    assert dq(FEATURES, 20, seed=0).tolist() != dq(FEATURES, 20, seed=1).tolist()


def test_a_wrong_number_of_bins_is_named() -> None:
    with pytest.raises(ValueError, match=r"bins must lie in 1\.\.60.*got 61"):
        dq(FEATURES, 5, bins=61)
