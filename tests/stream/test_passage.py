"""Who is let through: every outcome of chance, and draws that are what they should be."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from infobatch.stream.bins import BINS
from infobatch.stream.groups import Groups, Rule
from infobatch.stream.hashing import stable_hash
from infobatch.stream.ids import Ids
from infobatch.stream.keys import Keys
from infobatch.stream.passage import Draws, Gate, Passage
from infobatch.stream.source import Reader
from infobatch.stream.ticket import PERIOD, names, tag_of

TAG = tag_of(3)
RULE = Rule(0.1, None, "smooth", 0.1)


class EveryDraw(Draws):
    """Each draw once."""

    def after(self, position: int) -> Iterator[int]:
        return iter(range(position, PERIOD))


def gate(kind: str, ask: Callable[[Any], Any] | None, ticks: int) -> Gate:
    """The tables of a stream whose samples all have this probability, in ticks."""
    keys, ids = Keys(8) if kind == "key" else None, Ids(64) if kind == "id" else None
    groups = Groups(8 if kind == "key" else BINS, RULE)
    groups.ticks.array[:] = ticks
    if keys is not None:
        keys.enter([stable_hash("a")])
    if ids is not None:
        ids.book(np.array([stable_hash("a")]), np.array([1.0]))
    return Gate(kind, ask, groups, keys, ids, 64, TAG, "ticket")


def passage(gate: Gate, draws: Draws, samples: int = PERIOD) -> Passage:
    def read() -> Iterator[str]:
        return iter(["a"] * samples)

    return Passage(gate, Reader(read, 0, 1), draws, lambda begun: None)


ASKS: dict[str, Callable[[Any], Any]] = {"key": str, "id": str, "look": lambda samples: [1.0] * len(samples)}


@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.parametrize("ticks", [1, 2, 1639, 5461, PERIOD - 1, PERIOD])
def test_every_outcome_counted_the_expected_weight_is_1(kind: str, ticks: int) -> None:
    tickets = np.array([ticket for _, ticket in passage(gate(kind, ASKS[kind], ticks), EveryDraw(0, 0, 0, 0))])
    weight = PERIOD / ((tickets & (PERIOD - 1)) + 1)
    assert len(tickets) == ticks
    assert weight.sum() / PERIOD == pytest.approx(1, abs=1e-12)
    if kind != "look":
        assert set(names(tickets)) == {stable_hash("a")}


def test_draws_are_uniform_independent_and_can_be_had_from_any_position() -> None:
    draws = Draws(5, 0, 0, 0)
    first = [draw for draw, _ in zip(draws.after(0), range(20_000), strict=False)]
    assert [draw for draw, _ in zip(draws.after(3_333), range(100), strict=False)] == first[3_333:3_433]
    counts = np.bincount(np.array(first) >> 8, minlength=64)
    assert ((counts - 312.5) ** 2 / 312.5).sum() < 63 + 5 * np.sqrt(2 * 63)
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 5 / np.sqrt(20_000)
    others = [Draws(6, 0, 0, 0), Draws(5, 1, 0, 0), Draws(5, 0, 1, 0), Draws(5, 0, 0, 1)]
    blocks = [tuple(other.block(0)) for other in [draws, *others]]
    assert len(set(blocks)) == 5


def test_an_unknown_key_is_kept_with_weight_1() -> None:
    tables = gate("key", lambda sample: "new", 1)
    tickets = [ticket for _, ticket in passage(tables, Draws(0, 0, 0, 0), 50)]
    assert len(tickets) == 50
    assert {ticket & (PERIOD - 1) for ticket in tickets} == {PERIOD - 1}


def test_a_renewed_probability_is_seen_in_mid_pass() -> None:
    tables = gate("key", str, PERIOD)
    samples = passage(tables, Draws(0, 0, 0, 0), 1000)
    assert [next(samples)[1] & (PERIOD - 1) for _ in range(5)] == [PERIOD - 1] * 5
    tables.groups.ticks.array[:] = PERIOD // 4
    assert {ticket & (PERIOD - 1) for _, ticket in samples} == {PERIOD // 4 - 1}


def test_functions_that_fail_say_on_what() -> None:
    with pytest.raises(RuntimeError, match=r"key= failed on sample 0 .* 'a': ZeroDivisionError"):
        next(passage(gate("key", lambda sample: 1 / 0, 1), Draws(0, 0, 0, 0)))
    for kind in ("key", "id"):
        for answer in (["a"], 2.5):
            with pytest.raises(RuntimeError, match=r"TypeError.*It must return a whole number, text"):
                next(passage(gate(kind, lambda sample, answer=answer: answer, 1), Draws(0, 0, 0, 0)))
    with pytest.raises(ValueError, match=r"look must return one score per sample: got shape \(1,\) for a list of 64"):
        next(passage(gate("look", lambda samples: [1.0], 1), Draws(0, 0, 0, 0)))
