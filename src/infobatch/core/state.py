"""The format of a state: tensors and plain values, which ``torch.load(weights_only=True)`` reads back.

The whole format is here, with its versions and its checks: a state is loaded only after everything in it was checked.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .checks import check_whole
from .history import ScoreHistory
from .plan import EpochPlan
from .shuffle import Order
from .stats import EpochStats
from .weights import MAX_LEVELS, Weights

VERSION = 3


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment: everything but its arguments."""

    plan: EpochPlan  # ordered so that the entries done come first
    done: int  # the number of entries done
    batches: int  # on each rank
    complete: bool
    passed_over: int  # samples that were in batches, but not chosen from them
    batch_size: int  # of the loader, on each rank; 0 if not known, or if short batches are dropped
    scores: torch.Tensor
    rejected: int
    history: dict[int, EpochStats]
    memory: dict[str, NDArray[np.float32]]
    score_history: ScoreHistory | None = None  # where one is kept


def write(snapshot: Snapshot, identity: dict[str, Any], many_weights: bool) -> dict[str, Any]:
    """The state of a run with these arguments."""
    state = {
        "version": VERSION,
        **identity,
        "plan": _plan_state(snapshot.plan, many_weights),
        "done": snapshot.done,
        "batches": snapshot.batches,
        "complete": snapshot.complete,
        "passed over": snapshot.passed_over,
        "batch size": snapshot.batch_size,
        "scores": snapshot.scores.cpu().clone(),
        "rejected": snapshot.rejected,
        "history": [[e.epoch, e.total, e.kept, e.seen, e.noise] for e in snapshot.history.values()],
        "memory": {name: torch.from_numpy(values.copy()) for name, values in snapshot.memory.items()},
    }
    if snapshot.score_history is not None:
        state["score history"] = _history_state(snapshot.score_history)
    return {**state, "checksum": checksum(state)}


def read(state: Any, identity: dict[str, Any], memory: dict[str, NDArray[np.float32]]) -> Snapshot:
    """The inverse of :func:`write`, for a run and a memory like these; a ValueError says what is wrong."""
    saved, state = state, _migrate(state)
    _check_same(state, identity)
    size = identity["size"]
    _check_tensors(state, size, memory)
    if not isinstance(saved.get("checksum"), int) or checksum(saved) != saved["checksum"]:
        raise ValueError(
            "state_dict is damaged (its checksum is missing or does not match) and was not loaded: use an older one"
        )
    plan = _plan_from_state(state["plan"], size)
    if not 0 <= state["done"] <= len(plan):
        raise ValueError(f"state_dict: done is {state['done']}, but the plan of its epoch has {len(plan)} samples")
    return Snapshot(
        plan=plan,
        done=state["done"],
        batches=state["batches"],
        complete=state["complete"],
        passed_over=state["passed over"],
        batch_size=state["batch size"],
        scores=state["scores"],
        rejected=state["rejected"],
        history={row[0]: EpochStats(*row) for row in state["history"]},
        memory={name: state["memory"][name].cpu().numpy().copy() for name in memory},
        score_history=_history_from_state(state["score history"]) if "score history" in state else None,
    )


def seed_of(state: Any, otherwise: int) -> int:
    """The seed in a state; ``otherwise`` if it holds none."""
    seed = state.get("seed") if isinstance(state, dict) else None
    return seed if isinstance(seed, int) and seed >= 0 else otherwise


def read_alone(state: Any) -> tuple[dict[str, Any], Snapshot]:
    """(the run's arguments, the run at that moment) from a state without a run: to look at, not to resume from."""
    state_now = _migrate(state)
    identity = {name: state_now.get(name) for name in ("size", "seed", "method", "options", "momentum")}
    check_whole("state_dict: size", identity["size"], 1, "the number of samples")
    return identity, read(state, identity, {})


# -- versions ---------------------------------------------------------------------------------------------------------


def _with_memory(state: dict[str, Any]) -> dict[str, Any]:
    """Version 1 -> 2: methods of version 1 had no memory and did not choose within a batch."""
    return {**state, "passed over": 0, "memory": {}}


def _with_batch_size(state: dict[str, Any]) -> dict[str, Any]:
    """Version 2 -> 3: states of version 2 did not hold the loader's batch size."""
    return {**state, "batch size": 0}


# version -> the step that turns a state of that version into one of the next
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _with_memory, 2: _with_batch_size}


def _migrate(state: Any) -> dict[str, Any]:
    """The state in the current version, or a ValueError."""
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
    return {"memory": {}, **state}  # an empty dict is easily lost on the way through other formats


# -- checks -----------------------------------------------------------------------------------------------------------

_KINDS: dict[str, type] = {
    "plan": dict,
    "done": int,
    "batches": int,
    "complete": bool,
    "passed over": int,
    "batch size": int,
    "rejected": int,
    "history": list,
    "memory": dict,
}
_PLAN_KINDS: dict[str, type] = {"epoch": int, "kept": int, "uniform": bool, "repeats": bool}
_INTEGERS = (torch.int32, torch.int64)


def _check_same(state: dict[str, Any], here: dict[str, Any]) -> None:
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


def _check_tensors(state: dict[str, Any], size: int, memory: dict[str, NDArray[np.float32]]) -> None:
    """Raise ValueError unless the state is complete, and every tensor has the type and shape that it was saved with."""
    _check_kinds(state, _KINDS, "")
    plan = state["plan"]
    _check_kinds(plan, _PLAN_KINDS, "plan.")
    _check_tensor("scores", state.get("scores"), (torch.float32,), (size,))
    total = len(plan["indices"]) if isinstance(plan.get("indices"), torch.Tensor) and plan["indices"].dim() == 1 else 0
    _check_tensor("plan.indices", plan.get("indices"), _INTEGERS, (total if plan["repeats"] else size,))
    if "values" in plan:
        _check_tensor("plan.values", plan["values"], (torch.float64,), (size,))
    else:
        _check_tensor("plan.codes", plan.get("codes"), (torch.uint8,), (size,))
        _check_tensor("plan.levels", plan.get("levels"), (torch.float64,), (MAX_LEVELS,))
    if "score history" in state:
        _check_kinds(state, {"score history": dict}, "")
        _check_history(state["score history"], size)
    for name, values in memory.items():
        _check_tensor(f"memory.{name}", state["memory"].get(name), (torch.float32,), values.shape)


def _check_kinds(state: dict[str, Any], kinds: dict[str, type], where: str) -> None:
    for name, kind in kinds.items():
        if name not in state:
            raise ValueError(f"state_dict is damaged: it has no {where}{name}, and was not loaded. Use an older one")
        if type(state[name]) is not kind:
            raise ValueError(
                f"state_dict is damaged: {where}{name} must be of type {kind.__name__}, got {state[name]!r}; it was "
                "not loaded. Use an older one"
            )


def _check_tensor(name: str, value: Any, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...]) -> None:
    ok = isinstance(value, torch.Tensor) and value.layout is torch.strided
    if not ok or value.dtype not in dtypes or tuple(value.shape) != tuple(shape):
        kind = (
            f"{value.dtype}, {value.layout}, {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        )
        raise ValueError(
            f"state_dict: {name} must be a dense tensor of type {dtypes[0]} and shape {tuple(shape)}, as it was saved, "
            f"got {kind}; nothing was loaded. Do not convert the state, or use an older one"
        )


def checksum(state: dict[str, Any]) -> int:
    """A digest of everything in a state but its ``checksum``: names, types, shapes and values."""
    if state.get("version", VERSION) < 3:
        return _old_checksum(state)
    return _digest(state, "", 0)


def _digest(state: dict[str, Any], where: str, digest: int) -> int:
    for name in sorted(state):
        value, path = state[name], f"{where}{name}"
        if isinstance(value, dict):
            digest = _digest(value, f"{path}.", digest)
        elif isinstance(value, torch.Tensor):
            digest = zlib.crc32(f"{path} {value.dtype} {tuple(value.shape)}".encode(), digest)
            digest = zlib.crc32(value.cpu().contiguous().numpy().data, digest)
        elif path != "checksum":
            digest = zlib.crc32(repr((path, value)).encode(), digest)
    return digest


def _old_checksum(state: dict[str, Any], digest: int = 0) -> int:
    """The checksum as versions 1 and 2 computed it."""
    for name in sorted(state):
        value = state[name]
        if isinstance(value, dict):
            digest = _old_checksum(value, digest)
        elif isinstance(value, torch.Tensor):
            digest = zlib.crc32(value.cpu().contiguous().numpy().data, digest)
        elif name != "checksum":
            digest = zlib.crc32(repr((name, value)).encode(), digest)
    return digest


# -- the history of scores: an optional part, for runs that keep one ---------------------------------------------------


def _history_state(history: ScoreHistory) -> dict[str, torch.Tensor]:
    """All rows, also the empty ones: see :func:`_plan_state` for why."""
    return {
        "codes": torch.from_numpy(history.codes.copy()),
        "epochs": torch.from_numpy(history.epochs.copy()),
        "signed": torch.from_numpy(history.signed.copy()),
    }


def _check_history(state: dict[str, Any], size: int) -> None:
    epochs = state.get("epochs")
    rows = len(epochs) if isinstance(epochs, torch.Tensor) and epochs.dim() == 1 else 0
    _check_tensor("score history.epochs", epochs, (torch.int64,), (rows,))
    _check_tensor("score history.codes", state.get("codes"), (torch.uint8,), (rows, size))
    _check_tensor("score history.signed", state.get("signed"), (torch.uint8,), (rows,))


def _history_from_state(state: dict[str, Any]) -> ScoreHistory:
    """The inverse of :func:`_history_state`."""
    history = ScoreHistory(*state["codes"].shape)
    history.codes = state["codes"].cpu().numpy().copy()
    history.epochs = state["epochs"].cpu().numpy().copy()
    history.signed = state["signed"].cpu().numpy().copy()
    return history


# -- the plan ---------------------------------------------------------------------------------------------------------


def _plan_state(plan: EpochPlan, many_weights: bool) -> dict[str, Any]:
    """The plan itself, so that a resumed epoch does not depend on how another release draws plans.

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


def _plan_from_state(state: dict[str, Any], size: int) -> EpochPlan:
    """The inverse of :func:`_plan_state`."""
    total, kept = len(state["indices"]), state["kept"]
    if not 0 <= kept <= total:
        raise ValueError(f"state_dict: plan.kept is {kept}, but the epoch has {total} samples in all")
    indices = state["indices"][:kept].cpu().numpy().copy()
    if kept and not 0 <= indices.min() <= indices.max() < size:
        raise ValueError(f"state_dict: plan.indices names samples outside 0..{size - 1}")
    if state["uniform"]:
        weights = Weights.ones(size)
    elif "values" in state:
        weights = Weights.dense(state["values"].cpu().numpy().copy())
    else:
        weights = Weights.coded(state["codes"].cpu().numpy().copy(), state["levels"].cpu().numpy().copy())
    return EpochPlan(state["epoch"], Order(indices), weights, total, state["repeats"])
