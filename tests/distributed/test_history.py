"""Ranks keep one history: each of them the whole, and the same on any number of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from distributed.launch import forked
from distributed.scenarios import note, notes, numbers
from infobatch import InfoBatch


def keep(folder: Path, index_key: str | None, stop: bool) -> None:
    """Train four epochs with a history, the last of them in part with ``stop``; note it, and write table and page."""
    data = InfoBatch(numbers(31), 4, seed=2, history=True, index_key=index_key)
    loader = DataLoader(data, batch_size=12 // data.sampler.num_replicas, sampler=data.sampler)
    for epoch in range(4):
        data.set_epoch(epoch)
        for samples, *index in loader:
            data.update(torch.sin(samples * 7 + epoch).abs(), *index)
            if stop and epoch == 3 and data.batches_done == 1:
                break
    table = data.table()
    data.report(folder / "page.html")
    history = {name: part.tolist() for name, part in data.state_dict()["score history"].items()}
    note(folder, {"history": history, "table": {name: column.tolist() for name, column in table.items()}})


@pytest.mark.slow
@pytest.mark.parametrize(("index_key", "stop"), [(None, False), ("index", False), (None, True)])
def test_every_rank_has_the_history_of_one_process(index_key: str | None, stop: bool, tmp_path: Path) -> None:
    by_world = {}
    for world in (1, 2, 3):
        folder = tmp_path / str(world)
        folder.mkdir()
        assert forked(world, keep, folder, index_key, stop) == [0] * world
        ranks = notes(folder, world)
        assert all(str(rank) == str(ranks[0]) for rank in ranks)
        by_world[world] = str(ranks[0])
        assert (folder / "page.html").stat().st_size > 10_000
    assert by_world[1] == by_world[2] == by_world[3]


def differ(folder: Path) -> None:
    try:
        InfoBatch(numbers(9), 3, history=dist.get_rank() + 1)
    except ValueError as error:
        note(folder, str(error))


@pytest.mark.slow
def test_ranks_with_different_histories_are_told(tmp_path: Path) -> None:
    assert forked(2, differ, tmp_path) == [0, 0]
    for message in notes(tmp_path, 2):
        assert "epochs of history is 1 on rank 0 and 2 on rank 1" in message
