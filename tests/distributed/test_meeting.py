"""How ranks meet: a message of fixed size first, a bounded wait, and errors that name the rank and the call."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path

import pytest
import torch

from distributed import meeting
from distributed.launch import forked
from distributed.scenarios import notes
from infobatch.distributed.ranks import Ranks


def test_alone_there_is_one_rank() -> None:
    assert Ranks().here() == (0, 1)


def test_a_copy_keeps_its_group_here_and_leaves_it_behind_elsewhere() -> None:
    group = object()
    ranks = Ranks(group, 3.0)
    assert copy.deepcopy(ranks).group is group
    assert pickle.loads(pickle.dumps(Ranks(lambda: None, 3.0))).group is None


def test_every_rank_gets_what_all_have_said(tmp_path: Path) -> None:
    assert forked(3, meeting.meet, tmp_path) == [0] * 3
    assert all(torch.equal(said, torch.tensor([[0, 7], [1, 7], [2, 7]])) for said in notes(tmp_path, 3))


def test_plans_of_different_length_are_named(tmp_path: Path) -> None:
    assert forked(2, meeting.plans_of_different_length, tmp_path) == [0, 0]
    for message in notes(tmp_path, 2):
        assert message.startswith("RuntimeError: the ranks have 2 different plans")
        assert "rank 0: epoch 0, 20 samples" in message
        assert "rank 1: epoch 0, 14 samples" in message


@pytest.mark.slow
@pytest.mark.parametrize(("call", "caller"), [("set_epoch", 0), ("set_epoch", 1), ("iter", 0), ("state_dict", 0)])
def test_a_call_on_one_rank_ends_with_an_error_that_names_the_other(call: str, caller: int, tmp_path: Path) -> None:
    forked(2, meeting.lonely_call, tmp_path, call, caller)
    message, seconds = torch.load(tmp_path / f"rank-{caller}.pt")  # the other rank is killed when this one ends
    name = "state_dict()" if call == "state_dict" else "set_epoch() or the start of a loop over the loader"
    assert message.startswith(f"RuntimeError: rank {1 - caller} did not come to {name} within 2 s")
    assert "patience=seconds" in message
    assert seconds < 30  # the process group itself would wait for minutes


def test_different_calls_are_named(tmp_path: Path) -> None:
    assert forked(2, meeting.different_calls, tmp_path) == [0, 0]
    for message in notes(tmp_path, 2):
        assert "rank 0 is in set_epoch() or the start of a loop over the loader; rank 1 is in state_dict()" in message


@pytest.mark.parametrize("by_index", [False, True])
def test_a_state_at_uneven_steps_is_one_state_and_every_entry_comes_once(by_index: bool, tmp_path: Path) -> None:
    assert forked(2, meeting.uneven_steps, tmp_path, by_index) == [0, 0]
    one, other = notes(tmp_path, 2)
    assert one["checksum"] == other["checksum"]
    counted = Counter(one["seen"] + other["seen"] + one["rest"] + other["rest"])
    first = one["seen"][0]  # the plan's first sample, which fills up the last step
    assert set(counted) == set(range(31))
    assert all(count == 1 for sample, count in counted.items() if sample != first)
    assert one["scores"] == other["scores"] == [float(i) for i in range(31)]


@pytest.mark.parametrize("together", [True, False])
def test_two_losses_for_a_sample_have_their_mean(together: bool, tmp_path: Path) -> None:
    assert forked(2, meeting.two_losses, tmp_path, together) == [0, 0]
    one, other = notes(tmp_path, 2)
    assert [(a + b) / 2 for a, b in zip(one, other, strict=True)] == pytest.approx([1.0] * len(one))


@pytest.mark.parametrize("world", [2, 3])
def test_no_plan_ends_in_a_batch_that_full_data_does_not_have(world: int, tmp_path: Path) -> None:
    assert forked(world, meeting.batch_sizes, tmp_path) == [0] * world
    for rank in notes(tmp_path, world):
        full = set(rank[0][1])
        assert all(set(sizes) <= full for _, sizes in rank)
        assert min(kept for kept, _ in rank) < 2048


@pytest.mark.slow
def test_a_mesh_gives_tensor_parallel_peers_the_same_samples(tmp_path: Path) -> None:
    assert forked(4, meeting.mesh, tmp_path) == [0] * 4
    by_place = {tuple(rank["place"]): rank for rank in notes(tmp_path, 4)}
    assert set(by_place) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    for data in (0, 1):
        assert by_place[data, 0]["seen"] == by_place[data, 1]["seen"]
    assert all(rank["replicas"] == 2 and rank["resumed"] == 5 for rank in by_place.values())
    assert len({str(rank["plans"]) for rank in by_place.values()}) == 1
    assert len({str(rank["scores"]) for rank in by_place.values()}) == 1
    for epoch, plan in enumerate(by_place[0, 0]["plans"]):
        rows = [row[1:] for data in (0, 1) for row in by_place[data, 0]["seen"] if row[0] == epoch]
        counted = Counter(sample for row in rows for sample in row)
        assert counted == Counter(plan) + Counter(plan[: len(plan) % 2])
    assert len(by_place[0, 0]["plans"][1]) < 37


def test_a_late_batch_on_several_ranks_is_an_error(tmp_path: Path) -> None:
    assert forked(2, meeting.late_batches, tmp_path) == [0, 0]
    for message in notes(tmp_path, 2):
        assert message.startswith("DriftError: a batch of the epoch before came back after the next one began")
