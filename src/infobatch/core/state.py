"""State as tensors and plain numbers: what ``torch.load(weights_only=True)`` reads back."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .plan import EpochPlan
from .shuffle import Order
from .stats import EpochStats
from .weights import MAX_LEVELS, Weights

VERSION = 2


def _with_memory(state: dict[str, Any]) -> dict[str, Any]:
    """States of version 1 were of methods that remember nothing and do not choose within a batch."""
    return {**state, "passed over": 0, "memory": {}}


# version -> the step that turns a state of that version into one of the next
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _with_memory}


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
        if version not in MIGRATIONS:
            raise ValueError(
                f"state_dict has version {version}, which this release of infobatch no longer reads: "
                "load and save it once with an older release"
            )
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


def plan_state(plan: EpochPlan, many_weights: bool) -> dict[str, Any]:
    """A plan, literally: what is resumed does not depend on how another release draws plans.

    Shapes depend on the run's arguments alone, never on how much an epoch kept, because
    ``torch.distributed.checkpoint`` loads into tensors of the shapes it finds.
    """
    weights = plan.by_sample
    indices = np.full(plan.total, -1, plan.indices.dtype)
    indices[: len(plan)] = plan.indices
    state = {
        "epoch": plan.epoch,
        "kept": len(plan),
        "uniform": weights.uniform,
        "repeats": plan.repeats,
        "indices": torch.from_numpy(indices),
    }
    if many_weights or weights.values is not None:
        state["values"] = torch.from_numpy(np.array(weights.of(np.arange(weights.size))))
    else:
        codes, levels = np.ones(weights.size, np.uint8), np.zeros(MAX_LEVELS)
        if weights.codes is not None and weights.levels is not None:
            codes, levels[: len(weights.levels)] = weights.codes.copy(), weights.levels
        state["codes"], state["levels"] = torch.from_numpy(codes), torch.from_numpy(levels)
    return state


def plan_from_state(state: dict[str, Any], size: int) -> EpochPlan:
    """The inverse of :func:`plan_state`."""
    total = len(state["indices"])
    indices = state["indices"][: state["kept"]].cpu().numpy().copy()
    if state["uniform"]:
        weights = Weights.ones(size)
    elif "values" in state:
        weights = Weights.dense(state["values"].cpu().numpy().copy())
    else:
        weights = Weights.coded(state["codes"].cpu().numpy().copy(), state["levels"].cpu().numpy().copy())
    return EpochPlan(state["epoch"], Order(indices), weights, total, state["repeats"])


def checksum(state: dict[str, Any], digest: int = 0) -> int:
    """A digest of everything in a state but its ``checksum``, so that damage is noticed."""
    for name in sorted(state):
        value = state[name]
        if isinstance(value, dict):
            digest = checksum(value, digest)
        elif isinstance(value, torch.Tensor):
            digest = zlib.crc32(value.cpu().contiguous().numpy().data, digest)
        elif name != "checksum":
            digest = zlib.crc32(repr((name, value)).encode(), digest)
    return digest


def history_state(history: dict[int, EpochStats]) -> list[list[int]]:
    """One row an epoch: epoch, total, kept, seen."""
    return [[e.epoch, e.total, e.kept, e.seen] for e in history.values()]


def history_from_state(rows: list[list[int]]) -> dict[int, EpochStats]:
    """The inverse of :func:`history_state`."""
    return {row[0]: EpochStats(*row) for row in rows}
