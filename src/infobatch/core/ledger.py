"""The ledger of one pass over a plan: where training stands, and which sample each loss belongs to."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from .delivery import Delivery, find_delivery
from .plan import EpochPlan
from .scores import ScoreTable
from .weights import WeightLookup, working_dtype
from .window import Window, weighted_sum

_CHUNK = 1 << 16  # indices turned into Python ints at a time
_BATCHES = 64  # how many have their scores are booked together

_REMEDY = (
    "Call update() exactly once for every batch, in the loader's order; or say which samples a batch holds: "
    "InfoBatch(..., index_key=...) puts the index into the batch, update(loss, index) takes it back"
)


class DriftError(RuntimeError):
    """A batch's losses cannot be matched to its samples."""


@dataclass(frozen=True)
class Slice:
    """One rank's part of a plan from entry ``start`` on: ``indices`` in order; the last may be padding.

    Padding weighs nothing; ``global_padding`` counts that of all ranks, so that the mean over ranks is the true one.
    """

    indices: NDArray[np.integer]
    world: int = 1
    padded: bool = False
    global_padding: int = 0
    start: int = 0


class EpochLedger:
    """Hands this rank's indices out, checks every batch that comes back, books its scores and weighs its losses."""

    def __init__(self, plan: EpochPlan, part: Slice, table: ScoreTable, by_index: bool = False) -> None:
        self.plan = plan
        self.part = part
        self.table = table
        self.consumed = 0  # samples that update() has accounted for, by the host's count
        self.updates = 0  # the same in batches
        self.after_pending = False  # whether the pass before was left with a batch fetched and not updated
        self.deliverable = len(part.indices)  # less what drop_last leaves out, once the loader is known
        self.counted_before = 0  # indices of this epoch that a resumed stateful loader counts as its own
        self._weights = plan.by_sample
        self._lookup: WeightLookup | None = None
        if by_index or table.values.device.type == "cpu":  # there it costs nothing
            self._lookup = self._weights.lookup(table.values.device, torch.float32)
        self._chunk_end = 0
        self._chunk: Iterator[int] = iter(())
        self._delivery: Delivery | None = None
        self._opened = False
        self._window: Window | None = None
        self._compiled = False
        self._compiled_seen = torch.zeros((), dtype=torch.int64)
        self._strays = torch.zeros((), dtype=torch.int64)

    # -- handing out ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.part.indices)

    def open(self, sampler: Sampler[int]) -> Iterator[Iterator[int]]:
        """The slice's indices, in chunks, for a pass that has had no update yet."""
        assert not self.touched
        self._opened = True
        self._chunk, self._chunk_end = iter(()), 0
        self.counted_before = 0
        self._delivery = find_delivery(sampler)
        if self._delivery is not None and self._delivery.batch_size and self._delivery.drop_last:
            self.deliverable = len(self) - len(self) % self._delivery.batch_size
        return self._chunks()

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
            size = self._delivery.batch_size
            return min(self._delivered(self._delivery, size) * size, self.deliverable)
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
        mean = weighted_sum(loss, weight) / self._denominator(self.consumed, count)
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

    def _open_window(self, count: int, loss: torch.Tensor) -> Window:
        self.flush()
        start, end = self.consumed, min(self.consumed + _BATCHES * count, len(self))
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
        self._window = Window(index, weights, count)
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
        delivered = self._delivered(delivery, size)
        if delivered != self.updates + 1:
            raise DriftError(f"{_what_happened(delivered, self.updates)} {_REMEDY}")
        if self.after_pending and not self.updates and not delivery.open:
            raise DriftError(
                "a second iterator of the loader was made and dropped in the middle of an epoch, so that this batch "
                "may be the one fetched before. Look at samples through a loader of their own; or, if the epoch was "
                "left on purpose, say so: call train_data.set_epoch(epoch) before the next one"
            )
        if count != expected:
            raise ValueError(
                f"loss must hold one value per sample of the batch: got {count}, but the batch has {expected} samples"
            )

    def _delivered(self, delivery: Delivery, size: int) -> int:
        """Batches of this pass the loader has delivered."""
        return delivery.delivered - self.counted_before // size

    @property
    def pending(self) -> bool:
        """Whether the loader has delivered a batch that was not updated."""
        delivery = self._delivery
        if delivery is None or delivery.batch_size is None or self._compiled:
            return False
        return self._delivered(delivery, delivery.batch_size) > self.updates

    def close(self) -> None:
        """End the pass: book what is open, and raise if the last batches were never updated."""
        self.flush()
        pending, touched, delivery = self.pending, self.touched, self._delivery
        self._delivery = None
        if strays := int(self._strays):
            self._strays.zero_()
            raise DriftError(
                f"{strays} losses of the last epoch were for samples outside its plan: the index named samples that "
                f"were pruned, so batches came from another epoch or another sampler. {_REMEDY}"
            )
        if pending and touched and delivery is not None and delivery.batch_size is not None:
            delivered = self._delivered(delivery, delivery.batch_size)
            if delivered * delivery.batch_size >= self.deliverable:
                raise DriftError(
                    f"the epoch's {delivered} batches were all delivered, but update() was called for {self.updates}: "
                    f"the last losses are missing. {_REMEDY}"
                )

    def __getstate__(self) -> dict[str, Any]:
        """A copy cannot share the loader; what it has of the pass is what was booked."""
        self.flush()
        return {**vars(self), "_delivery": None, "_chunk": iter(()), "_chunk_end": 0}


def _what_happened(delivered: int, updated: int) -> str:
    if delivered <= updated:
        return f"update() was called again, though the loader has delivered only {delivered} batches."
    return (
        f"the loader has delivered {delivered} batches, but update() was called for only {updated} of the earlier "
        f"{delivered - 1}: an update was skipped, or something between loader and training fetches ahead or drops "
        "batches."
    )
