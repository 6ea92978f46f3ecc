"""torch.distributed.checkpoint: the state goes into the model's checkpoint, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint.stateful import Stateful

from distributed import scenarios
from distributed.launch import forked
from distributed.scenarios import notes, numbers
from distributed.training import differences
from infobatch import InfoBatch


def test_it_is_stateful() -> None:
    assert isinstance(InfoBatch(numbers(3), 2), Stateful)


@pytest.mark.parametrize(
    ("world", "options"),
    [
        *((1, {"method": name}) for name in ("full", "infobatch", "infobatch-quantile", "random", "ucb", "dyn-unc")),
        (1, {"strata": [i % 37 for i in range(37)], "saving": 0.3, "momentum": 0.5}),
        (2, {}),
        (2, {"saving": 0.3}),
    ],
)
def test_saved_in_the_middle_of_a_pruned_epoch_and_loaded_into_a_new_run(
    world: int, options: dict[str, Any], tmp_path: Path
) -> None:
    assert forked(world, scenarios.dcp_save, tmp_path, options) == [0] * world
    whole = notes(tmp_path, world)
    assert forked(world, scenarios.dcp_load, tmp_path, options) == [0] * world

    assert differences(whole, notes(tmp_path, world)) == []


def test_saved_on_two_ranks_and_loaded_on_one(tmp_path: Path) -> None:
    assert forked(2, scenarios.dcp_save, tmp_path, {}) == [0, 0]
    assert forked(1, scenarios.dcp_load, tmp_path, {}) == [0]

    assert notes(tmp_path, 1)[0]["history"][0][2:4] == [37, 37]
