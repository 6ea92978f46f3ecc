"""State as tensors and plain numbers, versioned."""

import io

import numpy as np
import pytest
import torch

from infobatch.core import state
from infobatch.core.plan import generator, shuffled
from infobatch.core.weights import Weights


def through_a_file(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


CODED = Weights.coded(np.array([1, 0, 2, 0, 1], np.uint8), np.array([0, 1.0, 5 / 3]))
DENSE = Weights.dense(np.array([0.0, 1.25, 0.0, 3.5, 1.0]))


@pytest.mark.parametrize(
    ("weights", "many"),
    [(Weights.ones(5), False), (Weights.ones(5), True), (CODED, False), (CODED, True), (DENSE, True)],
    ids=["ones", "ones of many", "coded", "coded of many", "dense"],
)
@pytest.mark.parametrize("order", [None, [4, 4, 0]], ids=["shuffled", "ordered"])
def test_a_plan_comes_back_literally(weights, many, order):
    plan = shuffled(3, weights, generator(0, 3), order)
    back = state._plan_from_state(through_a_file(state._plan_state(plan, many)), size=5)
    assert (back.epoch, back.total) == (plan.epoch, plan.total)
    assert back.indices.tolist() == plan.indices.tolist()
    assert back.indices.dtype == plan.indices.dtype
    assert back.by_sample.of(np.arange(5)).tolist() == weights.of(np.arange(5)).tolist()
    assert back.by_sample.uniform == plan.by_sample.uniform
    assert not back.indices.flags.writeable


@pytest.mark.parametrize("many", [False, True])
def test_shapes_do_not_depend_on_how_much_an_epoch_kept(many):
    """torch.distributed.checkpoint loads into tensors of the shapes it finds."""
    full, pruned = (state._plan_state(shuffled(0, w, generator(0, 0)), many) for w in (Weights.ones(5), CODED))

    def shapes(saved):
        return {name: (v.shape, v.dtype) for name, v in saved.items() if isinstance(v, torch.Tensor)}

    assert full.keys() == pruned.keys()
    assert shapes(full) == shapes(pruned)


@pytest.mark.parametrize(("weights", "many"), [(CODED, False), (DENSE, True)])
def test_a_saved_plan_is_a_copy(weights, many):
    plan = shuffled(0, weights, generator(0, 0))
    before = plan.indices.tolist(), plan.weights.tolist()
    saved = state._plan_state(plan, many)
    for value in saved.values():
        if isinstance(value, torch.Tensor):
            value.zero_()
    assert (plan.indices.tolist(), plan.weights.tolist()) == before


def whole_state():
    return {"scores": torch.rand(100), "plan": {"indices": torch.arange(40), "kept": 40}, "done": 7, "method": "full"}


def changed(found, name, value):
    plan = {**found["plan"], name: value} if name in found["plan"] else found["plan"]
    return {**found, "plan": plan, **({name: value} if name in found else {})}


def test_checksum_is_that_of_the_content():
    found = whole_state()
    copied = {**found, "scores": found["scores"].clone(), "plan": {**found["plan"]}}
    assert isinstance(state.checksum(found), int)
    assert state.checksum(copied) == state.checksum(found)
    assert state.checksum({**found, "checksum": 12}) == state.checksum(found)


@pytest.mark.parametrize("name", ["scores", "indices", "kept", "done", "method"])
def test_checksum_notices_any_change(name):
    found = whole_state()
    value = found.get(name, found["plan"].get(name))
    others = [value + "x" if isinstance(value, str) else value + 1]
    if isinstance(value, torch.Tensor):
        first, last = value.clone(), value.clone()
        first[0] += 1
        last[-1] += 1
        others += [first, last]
    for other in others:
        assert state.checksum(changed(found, name, other)) != state.checksum(found)


def test_todays_state_needs_no_migration():
    today = {"version": state.VERSION, "x": 1, "memory": {}}
    assert state._migrated(today) == today


def test_older_states_are_migrated_step_by_step(monkeypatch):
    monkeypatch.setattr(state, "VERSION", 3)
    monkeypatch.setitem(state.MIGRATIONS, 1, lambda s: {**s, "version": 2, "path": "1"})
    monkeypatch.setitem(state.MIGRATIONS, 2, lambda s: {**s, "version": 3, "path": s["path"] + "2"})
    assert state._migrated({"version": 1}) == {"version": 3, "path": "12", "memory": {}}


@pytest.mark.parametrize("alien", [{}, {"version": "1"}, {"state": {}}, [1, 2], None])
def test_what_is_no_state_is_refused(alien):
    with pytest.raises(ValueError, match="not the state of an InfoBatch"):
        state._migrated(alien)


def test_a_newer_state_is_refused():
    with pytest.raises(ValueError, match=r"version 99, this release of infobatch reads up to 3.*upgrade"):
        state._migrated({"version": 99})


def test_every_difference_between_runs_is_named():
    state._check_same({"seed": 1, "size": 5, "more": 0}, {"seed": 1, "size": 5})
    with pytest.raises(ValueError, match="different run") as error:
        state._check_same({"seed": 1, "size": 5}, {"seed": 2, "size": 5, "method": "full"})
    assert "seed: 1 in the state, 2 here" in str(error.value)
    assert "method: None in the state, 'full' here" in str(error.value)
    assert "size" not in str(error.value)
