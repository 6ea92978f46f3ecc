import numpy as np
import pytest

from infobatch.stream.groups import LEAST, Groups, Rule
from infobatch.stream.ticket import PERIOD


def learned(rule: Rule, rounds: int = 60) -> Groups:
    """Three groups of the same number of samples, whose squared gradients are 0.1, 1 and 4."""
    groups, rng = Groups(4, rule), np.random.default_rng(0)
    for _ in range(rounds):
        kept = rng.random((3, 40)) * PERIOD < groups.ticks.array[:3, None]
        group = np.nonzero(kept)[0]
        size = np.array([0.1, 1.0, 4.0])[group]
        groups.add(groups.gather(group, size, PERIOD / groups.ticks.array[group]))
    return groups


def test_the_running_figures_find_the_groups_and_the_budget_is_met() -> None:
    groups = learned(Rule(0.2, None, "smooth", 0.1))
    assert groups.mean[:3] == pytest.approx([0.1, 1, 4])
    assert groups.arrived[:3] / groups.arrived.sum() == pytest.approx([1 / 3] * 3, rel=0.1)
    assert 1.15 < groups.noise < 1.25
    assert groups.ticks.array[0] < groups.ticks.array[1] < groups.ticks.array[2] == PERIOD
    assert groups.keep == pytest.approx(groups.ticks.array[:3].mean() / PERIOD, rel=0.05)
    assert groups.stands_for[:3] == pytest.approx([2400] * 3, rel=0.1)


def test_a_wanted_saving_is_met() -> None:
    groups = learned(Rule(0.1, 0.4, "smooth", 0.1))
    assert groups.keep == pytest.approx(0.6, abs=0.01)


def test_a_group_is_kept_whole_until_enough_is_known_of_it() -> None:
    groups = Groups(2, Rule(0.5, None, "smooth", 0.1))
    few = np.zeros(LEAST - 1, np.int64)
    groups.add(groups.gather(few, np.ones(len(few)), np.ones(len(few))))
    assert groups.ticks.array.tolist() == [PERIOD, PERIOD]
    groups.add(groups.gather(few[:1], np.ones(1), np.ones(1)))
    assert groups.ticks.array[0] < groups.ticks.array[1] == PERIOD


def test_groups_alike_are_thinned_alike() -> None:
    rule, size = Rule(0.25, None, "smooth", 0.1), np.ones(3)
    assert rule.keep(size, size) == pytest.approx([0.8] * 3)


def test_negative_losses_are_measured_from_the_lowest() -> None:
    assert Rule(0.1, None, "smooth", 0.1).sizes(np.array([-1.0, 1.0]), -2.0).tolist() == [1, 3]


def test_a_state_brings_everything_back() -> None:
    groups = learned(Rule(0.2, None, "smooth", 0.1), 5)
    other = Groups(4, groups.rule)
    other.load(groups.state())
    more = groups.gather(np.array([0, 2]), np.array([0.3, 2.0]), np.array([2.0, 1.0]))
    groups.add(more)
    other.add(more)
    assert groups.ticks.array.tolist() == other.ticks.array.tolist()
    assert groups.keep == other.keep
