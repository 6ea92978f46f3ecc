"""The ledger of one pass over a plan: where training stands, and which sample each loss belongs to."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .delivery import Delivery, find_delivery
from .sampler import PlanSampler
from .scores import ScoreTable
from .weights import WeightLookup, Weights, working_dtype

_CHUNK = 1 << 16  # indices turned into Python ints at a time
_WINDOW = 64  # batches whose scores are booked together

_REMEDY = (
    "Call update() exactly once for every batch, in the loader's order; or say which samples a batch holds: "
    "InfoBatch(..., index_key=...) puts the index into the batch, update(loss, index) takes it back"
)


class DriftError(RuntimeError):
    """A batch's losses cannot be matched to its samples."""


class Slice:
    """One rank's part of a plan: ``indices`` in order; the last may be padding that weighs nothing.

    ``global_padding`` counts the padding of all ranks in the last step, so that the mean over ranks is the true one.
    """

    __slots__ = ("global_padding", "indices", "padded", "world")

    def __init__(
        self, indices: NDArray[np.integer], world: int = 1, padded: bool = False, global_padding: int = 0
    ) -> None:
        self.indices = indices
        self.world = world
        self.padded = padded
        self.global_padding = global_padding


class EpochLedger:
    """Hands this rank's indices out, checks every batch that comes back, books its scores and weighs its losses."""

    def __init__(self, part: Slice, weights: Weights, table: ScoreTable, by_index: bool = False) -> None:
        self.part = part
        self.table = table
        self.consumed = 0  # samples that update() has accounted for, by the host's count
        self.updates = 0  # the same in batches
        self.deliverable = len(part.indices)  # less what drop_last leaves out, once the loader is known
        self._weights = weights
        self._lookup: WeightLookup | None = None
        if by_index or table.values.device.type == "cpu":  # there it costs nothing
            self._lookup = weights.lookup(table.values.device, torch.float32)
        self._chunk_end = 0
        self._chunk: Iterator[int] = iter(())
        self._delivery: Delivery | None = None
        self._opened = False
        self._window: _Window | None = None
        self._compiled = False
        self._compiled_seen = torch.zeros((), dtype=torch.int64)
        self._strays = torch.zeros((), dtype=torch.int64)

    # -- handing out ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.part.indices)

    def indices(self, sampler: PlanSampler) -> Iterator[int]:
        """A fresh iterator over the slice, for a pass that has had no update yet."""
        assert not self.touched
        self._opened = True
        self._chunk, self._chunk_end = iter(()), 0
        self._delivery = find_delivery(sampler)
        if self._delivery is not None and self._delivery.batch_size and self._delivery.drop_last:
            self.deliverable = len(self) - len(self) % self._delivery.batch_size
        return itertools.chain.from_iterable(self._chunks())

    def _chunks(self) -> Iterator[Iterator[int]]:
        for start in range(0, len(self), _CHUNK):
            chunk = self.part.indices[start : start + _CHUNK].tolist()
            self._chunk, self._chunk_end = iter(chunk), start + len(chunk)
            yield self._chunk

    @property
    def handed_out(self) -> int:
        """How far the current iterator has come in the slice."""
        return self._chunk_end - operator.length_hint(self._chunk)

    # -- where training stands -----------------------------------------------------------------------------------

    @property
    def touched(self) -> bool:
        """Whether the pass has had an update: else it was a peek."""
        return self.updates > 0 or (self._compiled and int(self._compiled_seen) > 0)

    @property
    def complete(self) -> bool:
        """Whether every sample that will be delivered has been accounted for."""
        return self.seen >= self.deliverable

    @property
    def seen(self) -> int:
        """Samples accounted for; exact, and so a host sync when update() runs inside compiled code."""
        return self.consumed + (int(self._compiled_seen) if self._compiled else 0)

    @property
    def done(self) -> int:
        """Samples accounted for, for schedules: without a sync, by the loader's count, where update() is compiled."""
        if self._compiled and self._delivery is not None and self._delivery.batch_size:
            return min(self._delivery.delivered * self._delivery.batch_size, self.deliverable)
        return self.seen

    # -- the training step ---------------------------------------------------------------------------------------

    def update(self, loss: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The weighted mean of the next batch in the plan's order."""
        count = loss.shape[0]
        self._check_position(count)
        window = self._window
        if window is None or not window.fits(count, loss):
            window = self._open_window(count, loss)
        mean = window.weigh_and_note(loss, score)
        self.consumed += count
        self.updates += 1
        return mean

    def update_by_index(self, loss: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The weighted mean of the samples named by ``index``: tensor work only when compiled."""
        count = loss.shape[0]
        compiling = torch.compiler.is_compiling()
        if self._lookup is None or not self._lookup.fits(loss):
            self._lookup = self._weights.lookup(loss.device, working_dtype(loss))
            self._strays = self._strays.to(loss.device)
            self._compiled_seen = self._compiled_seen.to(loss.device)
        weight = self._lookup(index)
        stray = (weight == 0).sum()
        if not compiling and loss.device.type == "cpu" and stray:
            name = int(index[weight == 0][0])
            raise DriftError(
                f"index: sample {name} is not in this epoch's plan (it was pruned), so its batch is from another "
                f"epoch or was not drawn by train_data.sampler. {_REMEDY}"
            )
        self._strays += stray
        if self.part.padded:
            weight = torch.where(index == int(self.part.indices[-1]), torch.zeros_like(weight), weight)
        mean = _weighted_sum(loss, weight) / self._denominator(self.consumed, count)
        self.table.write(index, score)
        if compiling:
            self._compiled = True
            self._compiled_seen += count
        else:
            self.consumed += count
            self.updates += 1
        return mean.to(loss.dtype)

    def _denominator(self, start: int, count: int) -> float:
        """How many samples the mean is over: less the padding of all ranks, shared, in the last step."""
        if self.part.global_padding and start + count >= len(self):
            return count - self.part.global_padding / self.part.world
        return count

    def _open_window(self, count: int, loss: torch.Tensor) -> _Window:
        self.flush()
        start, end = self.consumed, min(self.consumed + _WINDOW * count, len(self))
        if loss.device.type != "cpu":
            end = len(self)  # one transfer an epoch
        indices = self.part.indices[start:end]
        weights = None
        if not self._weights.uniform or self.part.global_padding:
            values = np.array(self._weights.of(indices))
            if self.part.padded and end == len(self):
                values[-1] = 0
            last = (len(values) - 1) // count * count  # the only batch that may be short or padded
            values[:last] /= count
            values[last:] /= self._denominator(start + last, len(values) - last)
            weights = torch.from_numpy(values).to(loss.device, working_dtype(loss))
        index = torch.from_numpy(indices.astype(np.int64)).to(loss.device)
        self._window = _Window(index, weights, count)
        return self._window

    def flush(self) -> None:
        """Book the scores of the open window."""
        if self._window is not None:
            self.table.write(*self._window.noted())
            self._window = None

    # -- never the wrong sample ----------------------------------------------------------------------------------

    def _check_position(self, count: int) -> None:
        """Raise unless the batch in the user's hands is the next of the plan, and of this length."""
        if not self._opened:
            raise DriftError(
                "update() was called before train_data.sampler handed out any sample. "
                "Give the loader our sampler: DataLoader(train_data, sampler=train_data.sampler, ...)"
            )
        delivery = self._delivery
        if delivery is None:
            ahead = self.handed_out - self.consumed
            if ahead != count:
                raise DriftError(
                    f"update() got {count} losses, but {ahead} samples were handed out since the last update. {_REMEDY}"
                )
            return
        size = delivery.batch_size
        if (obstacle := delivery.obstacle()) is not None or size is None:
            raise DriftError(
                f"the batch cannot be known by its position: {obstacle}. Say which samples a batch holds: "
                "InfoBatch(..., index_key=...) puts the index into the batch, update(loss, index) takes it back"
            )
        expected = min(size, len(self) - self.consumed)
        delivered = delivery.delivered
        if delivered != self.updates + 1:
            raise DriftError(f"{_what_happened(delivered, self.updates)} {_REMEDY}")
        if count != expected:
            raise ValueError(
                f"loss must hold one value per sample of the batch: got {count}, but the batch has {expected} samples"
            )

    def close(self) -> None:
        """End the pass: book what is open, and raise if the last batches were never updated."""
        self.flush()
        self.table.warn_once_of_rejected()
        delivery, self._delivery = self._delivery, None
        if strays := int(self._strays):
            raise DriftError(
                f"{strays} losses of the last epoch were for samples outside its plan: the index named samples that "
                f"were pruned, so batches came from another epoch or another sampler. {_REMEDY}"
            )
        if delivery is None or delivery.batch_size is None or not self.touched or self._compiled:
            return
        if delivery.delivered * delivery.batch_size >= self.deliverable > self.consumed:
            raise DriftError(
                f"the epoch's {delivery.delivered} batches were all delivered, but update() was called for "
                f"{self.updates}: the last losses are missing. {_REMEDY}"
            )

    def __getstate__(self) -> dict[str, Any]:
        """A copy cannot share the loader; what it has of the pass is what was booked."""
        self.flush()
        return {**vars(self), "_delivery": None, "_chunk": iter(()), "_chunk_end": 0}


class _Window:
    """The next few batches of the plan: their weights, cut to batches, and room for their scores."""

    __slots__ = ("at", "index", "scores", "slots", "weights")

    def __init__(self, index: torch.Tensor, weights: torch.Tensor | None, batch: int) -> None:
        self.index = index
        self.scores = torch.empty(len(index), dtype=torch.float32, device=index.device)
        self.slots = torch.split(self.scores, batch)
        self.weights = None if weights is None else torch.split(weights, batch)
        self.at = 0

    def fits(self, count: int, loss: torch.Tensor) -> bool:
        """Whether the next batch has a place here."""
        return (
            self.at < len(self.slots)
            and self.slots[self.at].shape[0] == count
            and self.scores.device == loss.device
            and (self.weights is None or self.weights[self.at].dtype == working_dtype(loss))
        )

    def weigh_and_note(self, loss: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The batch's mean; its scores are noted for later."""
        self.slots[self.at].copy_(score.detach())
        mean = loss.mean() if self.weights is None else _weighted_sum(loss, self.weights[self.at]).to(loss.dtype)
        self.at += 1
        return mean

    def noted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(index, score) of all batches noted so far."""
        filled = sum(slot.shape[0] for slot in self.slots[: self.at])
        return self.index[:filled], self.scores[:filled]


def _weighted_sum(loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.dot(loss.to(weight.dtype), weight)


def _what_happened(delivered: int, updated: int) -> str:
    if delivered <= updated:
        return f"update() was called again, though the loader has delivered only {delivered} batches."
    return (
        f"the loader has delivered {delivered} batches, but update() was called for only {updated} of the earlier "
        f"{delivered - 1}: an update was skipped, or something between loader and training fetches ahead or drops "
        "batches."
    )
