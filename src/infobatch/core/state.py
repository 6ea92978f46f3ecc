"""State as tensors and plain numbers: what ``torch.load(weights_only=True)`` reads back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .plan import EpochPlan
from .stats import EpochStats
from .weights import Weights

VERSION = 1

# version -> the step that turns a state of that version into one of the next
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def migrated(state: dict[str, Any]) -> dict[str, Any]:
    """The state in today's version, or a ValueError."""
    version = state.get("version") if isinstance(state, dict) else None
    if not isinstance(version, int):
        raise ValueError("state_dict: this is not the state of an InfoBatch (it has no version)")
    if version > VERSION:
        raise ValueError(
            f"state_dict has version {version}, this release of infobatch reads up to {VERSION}: "
            "it was written by a newer release, so upgrade infobatch"
        )
    while version < VERSION:
        state = MIGRATIONS[version](state)
        version += 1
    return state


def check_same(state: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise ValueError, naming every difference, unless the state comes from a run like this one."""
    different = [
        f"{name}: {state.get(name)!r} in the state, {value!r} here"
        for name, value in here.items()
        if state.get(name) != value
    ]
    if different:
        raise ValueError(
            "state_dict is from a different run and was not loaded (" + "; ".join(different) + "). "
            "Make the InfoBatch with the arguments of the saved run"
        )


def plan_state(plan: EpochPlan) -> dict[str, Any]:
    """A plan, literally: what is resumed does not depend on how plans are drawn in another release."""
    weights = plan.by_sample
    arrays = {"codes": weights.codes, "levels": weights.levels, "values": weights.values}
    state: dict[str, Any] = {
        name: torch.from_numpy(array.copy()) for name, array in arrays.items() if array is not None
    }
    return {
        "epoch": plan.epoch,
        "indices": torch.from_numpy(plan.indices.copy()),
        "total": plan.total,
        **state,
    }


def plan_from_state(state: dict[str, Any], size: int) -> EpochPlan:
    """The inverse of :func:`plan_state`."""
    indices = state["indices"].numpy().copy()
    indices.setflags(write=False)
    arrays = {name: state[name].numpy().copy() if name in state else None for name in ("codes", "levels", "values")}
    return EpochPlan(state["epoch"], indices, Weights(size, **arrays), state["total"])


def history_state(history: dict[int, EpochStats]) -> torch.Tensor:
    """One row an epoch: epoch, total, kept, seen."""
    rows = [(e.epoch, e.total, e.kept, e.seen) for e in history.values()]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 4)


def history_from_state(rows: torch.Tensor) -> dict[int, EpochStats]:
    """The inverse of :func:`history_state`."""
    return {row[0]: EpochStats(*row) for row in rows.tolist()}
