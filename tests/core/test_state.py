"""State as tensors and plain numbers, versioned."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch, methods
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
    assert state._migrate(today) == today


def test_older_states_are_migrated_step_by_step(monkeypatch):
    monkeypatch.setattr(state, "VERSION", 3)
    monkeypatch.setitem(state.MIGRATIONS, 1, lambda s: {**s, "version": 2, "path": "1"})
    monkeypatch.setitem(state.MIGRATIONS, 2, lambda s: {**s, "version": 3, "path": s["path"] + "2"})
    assert state._migrate({"version": 1}) == {"version": 3, "path": "12", "memory": {}}


@pytest.mark.parametrize("alien", [{}, {"version": "1"}, {"state": {}}, [1, 2], None])
def test_what_is_no_state_is_refused(alien):
    with pytest.raises(ValueError, match="not the state of an InfoBatch"):
        state._migrate(alien)


def test_a_newer_state_is_refused():
    with pytest.raises(ValueError, match=r"version 99, this release of infobatch reads up to 3.*upgrade"):
        state._migrate({"version": 99})


def test_every_difference_between_runs_is_named():
    state._check_same({"seed": 1, "size": 5, "more": 0}, {"seed": 1, "size": 5})
    with pytest.raises(ValueError, match="different run") as error:
        state._check_same({"seed": 1, "size": 5}, {"seed": 2, "size": 5, "method": "full"})
    assert "seed: 1 in the state, 2 here" in str(error.value)
    assert "method: None in the state, 'full' here" in str(error.value)
    assert "size" not in str(error.value)


# -- what a damaged or foreign state does: nothing -------------------------------------------------------------------


def trained(**options):
    train_data = InfoBatch(range(12), 4, **options)
    train_data.update(torch.arange(12.0), torch.arange(12))
    train_data.set_epoch(1)
    return train_data


def without(name):
    return lambda found: {key: value for key, value in found.items() if key != name}


def with_plan(**changes):
    return lambda found: {**found, "plan": {**found["plan"], **changes}}


DAMAGES = {
    "no checksum": (without("checksum"), "checksum is missing"),
    "a checksum of text": (lambda s: {**s, "checksum": "1"}, "checksum is missing"),
    "no scores": (without("scores"), "scores must be a dense tensor of type torch.float32"),
    "no history": (without("history"), "it has no history"),
    "no plan": (without("plan"), "it has no plan"),
    "bf16 scores": (lambda s: {**s, "scores": s["scores"].bfloat16()}, "got torch.bfloat16"),
    "sparse scores": (lambda s: {**s, "scores": s["scores"].to_sparse()}, "torch.sparse_coo"),
    "reshaped scores": (lambda s: {**s, "scores": s["scores"].reshape(3, 4)}, r"shape \(12,\).*got .*\(3, 4\)"),
    "transposed codes": (lambda s: with_plan(codes=s["plan"]["codes"].int())(s), "plan.codes must be .*torch.uint8"),
    "another type of index": (lambda s: with_plan(indices=s["plan"]["indices"].float())(s), "plan.indices must be"),
    "done far beyond": (lambda s: {**s, "done": 10**9}, "damaged"),
    "done as text": (lambda s: {**s, "done": "3"}, "done must be of type int, got '3'"),
    "a swap of two tensors": (lambda s: with_plan(uniform=True)(s), "damaged"),
    "one score changed": (lambda s: {**s, "scores": s["scores"] + 1}, "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_named_and_changes_nothing(damage):
    spoil, said = DAMAGES[damage]
    train_data, saved = trained(), trained().state_dict()
    before = train_data.state_dict()
    with pytest.raises(ValueError, match=said):
        train_data.load_state_dict(spoil(saved))
    after = train_data.state_dict()
    assert after["checksum"] == before["checksum"]
    train_data.load_state_dict(saved)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"done": 10**9}, "done is 1000000000, but the plan of its epoch has"),
        ({"done": -1}, "done is -1"),
        ({"plan": {"kept": 99}}, "plan.kept is 99, but the epoch has 12"),
        ({"plan": {"kept": -2}}, "plan.kept is -2"),
        ({"plan": {"indices": torch.full((12,), 55, dtype=torch.int32)}}, r"outside 0\.\.11"),
    ],
)
def test_values_that_cannot_be_are_refused_even_with_a_right_checksum(changes, said):
    saved = trained().state_dict()
    wrong = {**saved, **{k: {**saved["plan"], **v} if k == "plan" else v for k, v in changes.items()}}
    wrong["checksum"] = state.checksum(wrong)
    with pytest.raises(ValueError, match=said):
        trained().load_state_dict(wrong)


def test_the_checksum_covers_names_types_and_shapes():
    saved = trained().state_dict()
    renamed = {**without("done")(saved), "dona": saved["done"]}
    others = [
        renamed,
        {**saved, "scores": saved["scores"].view(torch.int32)},
        {**saved, "scores": saved["scores"][None]},
    ]
    assert all(state.checksum(other) != saved["checksum"] for other in others)


def test_an_empty_memory_may_be_lost_on_the_way():
    train_data = trained()
    train_data.load_state_dict(without("memory")(trained().state_dict()))
    assert train_data.epoch == 1


def test_a_memory_that_the_method_needs_may_not():
    saved = trained(method="ucb").state_dict()
    with pytest.raises(ValueError, match=r"memory\.\w+ must be a dense tensor"):
        trained(method="ucb").load_state_dict({**saved, "memory": {}})


# -- states of older releases ----------------------------------------------------------------------------------------

OLD = torch.load(Path(__file__).parents[1] / "fixtures" / "states-of-version-2.pt", weights_only=True)


@pytest.mark.parametrize("name", OLD)
def test_a_state_of_version_2_goes_on_as_it_would_have(name):
    """Saved by the release before version 3, with what training did from there on: see fixtures/README.md."""
    saved = OLD[name]
    for done, old in saved["states"].items():
        options = {"ratio": 0.5, "seed": 3, **saved["options"]}
        # That release ignored delta for a method that does not anneal by itself.
        anneal = methods.info(options.get("method", "infobatch")).anneals
        train_data = InfoBatch(TensorDataset(torch.arange(45.0)), 8, delta=0.75, anneal=anneal, **options)
        loader = DataLoader(train_data, 4, sampler=train_data.sampler, drop_last=True)
        train_data.load_state_dict(old)
        way = []
        for epoch in range(train_data.epoch, 8):
            train_data.set_epoch(epoch)
            for x, *index in loader:
                mean = train_data.update((1 + torch.sin(x * 1.7 + epoch)).float(), *index)
                way.append([epoch, x.long().tolist(), float(mean)])
        # The plans are the same to the bit. A sine and a sum differ in their last bit from one processor to another.
        assert [step[:2] for step in way] == [step[:2] for step in saved["way"][done:]]
        assert [step[2] for step in way] == pytest.approx([step[2] for step in saved["way"][done:]], rel=1e-6)
        torch.testing.assert_close(torch.from_numpy(train_data.scores.copy()), saved["scores"], rtol=1e-6, atol=1e-6)
        assert [[e.epoch, e.total, e.kept, e.seen] for e in train_data.stats.epochs] == saved["history"]
