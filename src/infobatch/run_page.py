"""The page of a run, made from its state: what was saved, and what its samples did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .core import state as states
from .core.history import sizes
from .core.stats import EpochStats
from .exhibits import from_dataset, show
from .sample_table import SampleTable

MOST_LABELS = 10_000  # different labels that the page can filter by


def find_state(content: Any) -> dict[str, Any]:
    """Find the state of a run in a checkpoint: the checkpoint itself or any part of it; there must be only one.

    >>> find_state({"model": {}, "data": {"version": 3, "scores": 0, "plan": 0}})["version"]
    3
    """
    candidates = [*_find_states(content)]
    if len(candidates) != 1:
        count = len(candidates) or "none"
        raise ValueError(
            f"the file must hold the state of one InfoBatch, and holds {count}: save train_data.state_dict(), alone or "
            "in a dict"
        )
    return candidates[0]


def _find_states(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, Mapping):
        if {"version", "scores", "plan"} <= content.keys():
            yield dict(content)
            return
        for part in content.values():
            yield from _find_states(part)
    elif isinstance(content, list | tuple):
        for part in content:
            yield from _find_states(part)


def read_table(state: Mapping[str, Any]) -> SampleTable:
    """Read the table of the samples from the state of a run."""
    _, snapshot = _snapshot(state)
    return SampleTable(snapshot.scores.cpu().numpy(), snapshot.score_history)


def write_page(
    state: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    render: Callable[[int], Any] | None = None,
    labels: ArrayLike | None = None,
    samples: Iterable[int] = (),
    dataset: Any = None,
    epochs: Iterable[EpochStats] | None = None,
    title: str | None = None,
) -> None:
    """Write the page of the run that has this state; it always shows ``samples``, besides those of its lists.

    Without ``render``, samples are read from ``dataset`` if it holds pictures or texts. ``epochs`` come from the run's
    statistics, which know more about the last epoch than the state does.
    """
    from .report import explorer

    if render is not None and not callable(render):
        raise TypeError(
            f"render must be a function of a sample's index, got {render!r}: give render=lambda index: data[index][0]"
        )
    identity, snapshot = _snapshot(state)
    size = identity["size"]
    names, codes = _encode_labels(labels, size)
    in_state = [snapshot.history[epoch] for epoch in sorted(snapshot.history)]
    wanted = np.unique(np.asarray([*samples], np.int64))
    if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < size:
        raise IndexError(f"samples must be indices from 0 to {size - 1}, got {wanted[0]} to {wanted[-1]}")
    table = SampleTable(snapshot.scores.cpu().numpy(), snapshot.score_history)
    if render is None and dataset is not None:
        render = from_dataset(dataset)
    explorer.write(
        explorer.RunView(
            title=title or "What your samples did",
            method=str(identity["method"]),
            size=size,
            epochs=[explorer.EpochRow(e.epoch, e.total, e.kept, e.seen, e.noise) for e in epochs or in_state],
            scores=table["score"],
            dynamics=_dynamics(table),
            label_names=names,
            label_codes=codes,
            wanted=wanted,
            show=None if render is None else lambda index: show(render, index),
        ),
        path,
    )


def _snapshot(state: Mapping[str, Any]) -> tuple[dict[str, Any], states.Snapshot]:
    """A state's arguments and content; the history also gets the scores of an epoch that ended but is not in it yet."""
    identity, snapshot = states.read_alone(state)
    history = snapshot.score_history
    if history is not None and snapshot.complete and snapshot.done:
        history.write(
            snapshot.plan.epoch, np.asarray(snapshot.plan.order[: snapshot.done]), snapshot.scores.cpu().numpy()
        )
    return identity, snapshot


def _dynamics(table: SampleTable) -> Any:
    from .report import explorer

    history, trajectories = table.history, table.trajectories
    if history is None or trajectories is None:
        return None
    return explorer.Dynamics(
        epochs=trajectories.epochs,
        thresholds=trajectories.thresholds,
        columns={name: table[name] for name in explorer.COLUMNS},
        never_learned=trajectories.never_learned,
        never_needed=trajectories.never_needed,
        learned=trajectories.learned,
        codes=[history.codes_of(epoch) for epoch in trajectories.epochs],
        values=[sizes(bool(history.signed[epoch % history.rows])) for epoch in trajectories.epochs],
    )


def _encode_labels(labels: ArrayLike | None, size: int) -> tuple[list[str], NDArray[np.int64] | None]:
    """The names of the labels, and each sample's label as a number."""
    if labels is None:
        return [], None
    values = np.asarray(labels)
    if values.ndim != 1 or len(values) != size:
        raise ValueError(
            f"labels must hold one label for each of the {size} samples, got the shape {values.shape}: give them in "
            "the order of the data set"
        )
    classes, codes = np.unique(values if values.dtype.kind in "iub" else values.astype(str), return_inverse=True)
    if len(classes) > MOST_LABELS:
        raise ValueError(
            f"labels must be classes, at most {MOST_LABELS:,} different ones to filter by, got {len(classes):,}: leave "
            "labels out, or give coarser ones"
        )
    return [str(name) for name in classes], codes.astype(np.int64)
