"""One row per sample: its score and, where a history was kept, figures of its scores over training."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .core.checks import nearest
from .core.history import ScoreHistory
from .core.trajectories import Trajectories, measure
from .files import write_whole

ALWAYS = ("index", "score")
WITH_HISTORY = (
    "times_trained",
    "times_left_out",
    "mean",
    "variability",
    "forgetting_events",
    "suspicion",
)
_BLOCK = 100_000  # rows that are turned into text at a time


class SampleTable(Mapping[str, NDArray[Any]]):
    """Columns by name, numpy arrays of equal length; ``trajectories`` is None where no history was kept.

    >>> table = SampleTable(np.array([0.5, 2.0], np.float32))
    >>> list(table), table["score"].tolist()
    (['index', 'score'], [0.5, 2.0])
    """

    def __init__(self, scores: NDArray[np.float32], history: ScoreHistory | None = None) -> None:
        self.history = history
        self.trajectories: Trajectories | None = None
        self._columns: dict[str, NDArray[Any]] = {"index": np.arange(len(scores)), "score": scores}
        if history is not None and history.epochs_known():
            self.trajectories = measure(history)
            self._columns |= {name: getattr(self.trajectories, name) for name in WITH_HISTORY}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns:
            if name in WITH_HISTORY:
                raise KeyError(
                    f"{name} is computed from the scores of every epoch, which this run did not keep: train with "
                    "InfoBatch(..., history=True)"
                )
            raise KeyError(f"the table has no column {name!r}{nearest(name, self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """The number of columns, as for any mapping; ``size`` is the number of samples."""
        return len(self._columns)

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self._columns["index"])

    def __repr__(self) -> str:
        return f"SampleTable({self.size:,} samples: {', '.join(self)})"

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the columns as CSV, whole or not at all; an unknown number is an empty cell."""
        with write_whole(path) as file:
            file.write((",".join(self) + "\n").encode())
            for start in range(0, self.size, _BLOCK):
                text = io.StringIO()
                part = [_cells(column[start : start + _BLOCK]) for column in self.values()]
                csv.writer(text, lineterminator="\n").writerows(zip(*part, strict=True))
                file.write(text.getvalue().encode())

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the columns as Parquet, whole or not at all."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError(
                'to_parquet() needs pyarrow: pip install "infobatch[parquet]"; to_csv() does not'
            ) from error
        with write_whole(path) as file:
            parquet.write_table(pyarrow.table(dict(self)), file)


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind != "f":
        return list(column.tolist())
    return ["" if value != value else f"{value:.7g}" for value in column.tolist()]
