"""The ledger of one pass over a plan: hands samples out, and books each batch's losses when they come back."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from .plan import EpochPlan
from .scores import ScoreTable
from .slice import Slice
from .watch import REMEDY, DriftError, Watch
from .weights import WeightLookup, working_dtype
from .window import Window, weighted_sum

_CHUNK = 1 << 12  # indices turned into Python ints at a time: few enough for the cache
_BATCHES = 64  # how many have their scores booked together


@dataclass(frozen=True)
class Choice:
    """Part of a batch: the positions that were chosen by the losses of all."""

    positions: torch.Tensor
    loss: torch.Tensor  # of the whole batch, as it was looked at
    index: torch.Tensor | None  # the whole batch's samples, where they are named

    def spread(self, loss: torch.Tensor) -> torch.Tensor:
        """Losses of the chosen samples as a whole batch's: 0 for the others, and the same mean."""
        scale = len(self.loss) / len(self.positions)
        return torch.zeros_like(self.loss, dtype=loss.dtype).index_copy(0, self.positions, loss * scale)

    def renewed(self, score: torch.Tensor) -> torch.Tensor:
        """The whole batch's scores, of which those of the chosen samples are newer."""
        return self.loss.to(score.dtype).index_copy(0, self.positions, score.detach())


class EpochLedger:
    """One pass over one rank's slice: which sample each loss belongs to, and what it weighs."""

    def __init__(
        self,
        plan: EpochPlan,
        part: Slice,
        table: ScoreTable,
        by_index: bool = False,
        batches_before: int = 0,
        passed_over_before: int = 0,
    ) -> None:
        self.plan = plan
        self.batches_before = batches_before  # of this epoch, before it was resumed
        self.passed_over_before = passed_over_before  # as well
        self._passed_over = 0  # samples of this rank's batches that were looked at but not chosen
        self.choice: Choice | None = None  # of the batch in the user's hands
        self.part = part
        self.table = table
        self.watch = Watch(len(part))
        self.consumed = 0  # samples that update() has accounted for, by the host's count
        self._lookup: WeightLookup | None = None
        if by_index or table.values.device.type == "cpu":  # there it costs nothing
            self._lookup = plan.by_sample.lookup(table.values.device, torch.float32)
        self._chunk_end = 0
        self._chunk: Iterator[int] = iter(())
        self._window: Window | None = None
        self._compiled = False
        self._compiled_seen = torch.zeros((), dtype=torch.int64, device="cpu")
        self._strays = torch.zeros((), dtype=torch.int64, device="cpu")

    # -- handing out ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.part)

    def open(self, sampler: Sampler[int]) -> Iterator[Iterator[int]]:
        """The slice's indices, in chunks, for a pass that has had no update yet."""
        assert not self.touched
        self._chunk, self._chunk_end = iter(()), 0
        self.watch.open(sampler)
        return self._chunks()

    def _chunks(self) -> Iterator[Iterator[int]]:
        self.watch.begin()
        for start in range(0, len(self), _CHUNK):
            chunk = self.part[start : start + _CHUNK].tolist()
            self._chunk, self._chunk_end = iter(chunk), start + len(chunk)
            yield self._chunk

    def _handed_out(self) -> int:
        return self._chunk_end - operator.length_hint(self._chunk)

    def place(self) -> dict[str, int]:
        """Where the sampler's iterator stands: in the global plan, and in indices handed out on this rank."""
        handed_out = self._handed_out()
        return {
            "epoch": self.plan.epoch,
            "position": self.part.start + handed_out * self.part.world,
            "handed_out": self.watch.counted_before + handed_out,
            "ended": handed_out >= self.watch.deliverable,
        }

    # -- where training stands -----------------------------------------------------------------------------------

    @property
    def touched(self) -> bool:
        """Whether the pass has had an update: else it was a peek."""
        return self.watch.updates > 0 or (self._compiled and int(self._compiled_seen) > 0)

    @property
    def complete(self) -> bool:
        """Whether every sample that will be delivered has been accounted for."""
        return self.seen >= self.watch.deliverable

    @property
    def seen(self) -> int:
        """Samples accounted for; exact, and so a host sync when update() runs inside compiled code."""
        return self.consumed + (int(self._compiled_seen) if self._compiled else 0)

    @property
    def passed_over(self) -> int:
        """Samples that were in batches but not chosen from them: of all ranks, as if they were alike."""
        return self.passed_over_before + self._passed_over * self.part.world

    @property
    def done(self) -> tuple[int, int]:
        """(samples, batches) accounted for, without a sync: by the loader's count where update() is compiled."""
        if self._compiled and self.watch.knows_loader:
            return self.watch.samples, self.batches_before + self.watch.batches
        return self.seen, self.batches_before + self.watch.updates

    # -- the training step ---------------------------------------------------------------------------------------

    def batch_size(self) -> int:
        """The number of samples of the batch that is in the user's hands, which only the loader can tell."""
        if not self.watch.knows_loader:
            raise DriftError(
                "loss is one number for a batch whose size cannot be told, because no torch DataLoader draws from "
                "train_data.sampler. Say which samples it is the mean of: update(loss, index)"
            )
        return self.watch.samples - self.consumed

    def chosen(
        self, loss: torch.Tensor, index: torch.Tensor | None, score: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """The losses of a chosen part as those of the whole batch, with its mean; the batch's samples and scores."""
        choice, self.choice = self.choice, None
        assert choice is not None
        if index is not None and choice.index is not None:
            other = (index.to(loss.device) != choice.index.to(loss.device)[choice.positions]).sum()
            if loss.device.type == "cpu" and other:
                raise DriftError(
                    "index names other samples than those that choose() gave: update() must follow the choose() of "
                    f"the same batch, with index[chosen]. {REMEDY}"
                )
            self._strays = self._strays.to(loss.device) + other  # told at the end of the epoch, without a sync here
        self._passed_over += len(choice.loss) - len(choice.positions)
        return choice.spread(loss), choice.index, choice.renewed(score)

    def update(self, loss: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The weighted mean of the next batch in the plan's order."""
        count = loss.shape[0]
        self.watch.check(count, self.consumed, self._handed_out())
        window = self._window
        if window is None or not window.fits(count, loss):
            window = self._open_window(count, loss)
        mean = window.weigh_and_note(loss, score)
        self.consumed += count
        self.watch.note(by_index=False)
        return mean

    def update_by_index(self, loss: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The weighted mean of the samples named by ``index``: tensor work only when compiled."""
        count = loss.shape[0]
        compiling = torch.compiler.is_compiling()
        if self._lookup is None or not self._lookup.fits(loss):
            self._lookup = self.plan.by_sample.lookup(loss.device, working_dtype(loss))
            self._strays = self._strays.to(loss.device)
            self._compiled_seen = self._compiled_seen.to(loss.device)
        weight = self._lookup(index)
        stray = (weight == 0).sum()
        if not compiling and loss.device.type == "cpu" and stray:
            name = int(index[weight == 0][0])
            raise DriftError(
                f"index: sample {name} is not in this epoch's plan (it was pruned), so its batch is from another "
                f"epoch or was not drawn by train_data.sampler. {REMEDY}"
            )
        self._strays += stray
        padding = None
        if self.part.padded:
            padding = self._padding(index)
            weight = torch.where(padding, torch.zeros_like(weight), weight)
        mean = weighted_sum(loss, weight) / self._denominator(self.consumed, count)
        if compiling:
            self._compiled = True
            self._compiled_seen += count
        else:
            self.flush()  # the window goes on from its own place
            self.consumed += count
            self.watch.note(by_index=True)
        if self.plan.repeats and not compiling:
            real = slice(None) if padding is None else ~padding
            self.table.write_repeats(index[real], score[real])
        else:
            self.table.write(index, score, leave=padding)
        return mean.to(loss.dtype)

    def weights_of(self, index: torch.Tensor) -> torch.Tensor:
        """What these samples' losses are multiplied by, on the host: 0 where it is pruned, or only padding."""
        weight = torch.tensor(self.plan.by_sample.of(index.cpu().numpy()), dtype=torch.float64, device="cpu")
        if self.part.padded and not self.plan.repeats:
            weight[index.cpu() == self.part.padding] = 0
        return weight

    def _padding(self, index: torch.Tensor) -> torch.Tensor:
        """Which of these samples is this rank's padding."""
        if not self.plan.repeats:
            return index == self.part.padding
        last = self.consumed + len(index) >= len(self)  # the sample may be here in its own right as well
        return torch.arange(len(index), device=index.device) == (len(index) - 1 if last else -1)

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
        indices = self.part[start:end]
        weights = None
        if not self.plan.by_sample.uniform or self.part.global_padding:
            values = np.array(self.plan.by_sample.of(indices))
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
            index, score = self._window.noted()
            self._window = None
            if self.part.padded and self.consumed == len(self):
                index, score = index[:-1], score[:-1]
            if self.plan.repeats:
                self.table.write_repeats(index, score)
            else:
                self.table.write(index, score)

    def close(self) -> None:
        """End the pass: book what is open, and raise if batches were missed or named wrongly."""
        self.flush()
        strays = int(self._strays)
        self._strays.zero_()
        if not self._compiled:
            self.watch.check_end(self.consumed, self._handed_out())
        if strays:
            raise DriftError(
                f"{strays} losses of the last epoch were for samples outside its plan: the index named samples that "
                f"were pruned, so batches came from another epoch or another sampler. {REMEDY}"
            )

    def __getstate__(self) -> dict[str, Any]:
        """A copy cannot share the loader; what it has of the pass is what was booked."""
        return {**vars(self), "_chunk": iter(()), "_chunk_end": 0}
