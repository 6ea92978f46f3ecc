"""Weights the losses of one epoch, and records each score for its own sample.

By position, the next few batches of the plan are prepared as tensors (:class:`Window`), so that a training step needs
no look-up; their scores are written to the table together. By index, weights are looked up by sample and scores are
written at once. Neither syncs with the host.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from .delivery import DriftError
from .plan import EpochPlan
from .position import REMEDY, Position
from .scores import ScoreTable, lasting
from .weights import WeightLookup, working_dtype

_BATCHES = 64  # how many batches have their scores written together


class Booking:
    """Weights the losses of one epoch and records their scores."""

    def __init__(
        self,
        plan: EpochPlan,
        position: Position,
        table: ScoreTable,
        by_index: bool = False,
        before: Booking | None = None,
    ) -> None:
        self.plan = plan
        self.position = position
        self.table = table
        # (losses, weights) of the last batch; weights are None if all are 1.
        self._last: tuple[torch.Tensor, torch.Tensor | None] | None = None if before is None else before._last
        self._lookup: WeightLookup | None = None
        with lasting():
            self._strays = torch.zeros((), dtype=torch.int64, device="cpu")  # losses of samples outside the plan
            if by_index or table.values.device.type == "cpu":  # on a CPU it costs nothing
                self._lookup = plan.by_sample.lookup(table.values.device, torch.float32)
        self._window: Window | None = None
        self._mean_weight: torch.Tensor | None = None
        if by_index:
            self._stands_for()  # before anything is compiled

    # -- by position ---------------------------------------------------------------------------------------------

    def update(self, loss: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The weighted mean of the next batch in the plan's order."""
        count = loss.shape[0]
        self.position.check(count)
        window = self._window
        if window is None or not window.fits(count, loss):
            window = self._open_window(count, loss)
        noted = score.detach()
        mean, weights = window.weigh_and_note(loss, noted)
        self._last = noted if score is loss else loss.detach(), weights
        self.position.advance(count)
        return mean

    def _open_window(self, count: int, loss: torch.Tensor) -> Window:
        self.flush()
        part, start = self.position.part, self.position.cursor
        end = min(start + _BATCHES * count, len(part))
        if loss.device.type != "cpu":
            end = len(part)  # one transfer an epoch
        indices = part[start:end]
        weights: NDArray[np.float64] | None = None
        if not self.plan.by_sample.uniform or part.global_padding:
            weights = np.array(self.plan.by_sample.of(indices))
            if part.padded and end == len(part):
                weights[-1] = 0
            if self.position.keeps_steps:
                weights /= float(self._stands_for())
            last = (len(weights) - 1) // count * count  # the only batch that may be short or padded
            weights[:last] /= count
            weights[last:] /= self._denominator(len(weights) - last, start + len(weights) == len(part))
        with lasting():
            index = torch.from_numpy(indices.astype(np.int64)).to(loss.device)
            values = None if weights is None else torch.from_numpy(weights).to(loss.device, working_dtype(loss))
            self._window = Window(index, values, count)
        return self._window

    def _denominator(self, count: int, is_last: bool) -> float:
        """The number of samples in a batch's mean; in the last step, less this rank's share of all ranks' padding."""
        return count - self.position.part.global_padding / self.position.part.world if is_last else count

    def _stands_for(self) -> torch.Tensor:
        """The mean weight: how many samples of full data a sample of the plan stands for, on average.

        Where steps stay, a batch's mean is divided by it, so that the loss is on the scale of full data.
        """
        if self._mean_weight is None:
            plan = self.plan
            mean = float(plan.weights.mean()) if plan.repeats and len(plan) else plan.by_sample.mean()
            with lasting():
                self._mean_weight = torch.tensor(mean, dtype=torch.float64, device="cpu")
        return self._mean_weight

    def flush(self) -> None:
        """Write the scores of the open window to the table."""
        if self._window is None:
            return
        index, score = self._window.noted()
        self._window = None
        part = self.position.part
        if part.padded and self.position.cursor == len(part):
            index, score = index[:-1], score[:-1]
        if self.plan.repeats:
            self.table.write_repeats(index, score)
        else:
            self.table.write(index, score)

    # -- by index ------------------------------------------------------------------------------------------------

    def update_named(self, loss: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The weighted mean of the samples named by ``index``: tensor operations only, when compiled."""
        compiling = torch.compiler.is_compiling()
        if self._lookup is None or not self._lookup.fits(loss):
            with lasting():
                self._lookup = self.plan.by_sample.lookup(loss.device, working_dtype(loss))
                self._strays = self._strays.to(loss.device)
        weight = self._lookup.of(index)
        stray = (weight == 0).sum()
        if not compiling and loss.device.type == "cpu" and stray:
            raise DriftError(
                f"index: sample {int(index[weight == 0][0])} is not in this epoch's plan (it was pruned), so its batch "
                f"is from another epoch or was not drawn by train_data.sampler. {REMEDY}"
            )
        self._strays += stray
        padding, rows = None, loss.shape[0]
        mean_over: torch.Tensor | float = rows
        if self.position.part.global_padding:
            padding = self._padding(index)
            weight = torch.where(padding, torch.zeros_like(weight), weight)
            mean_over = self._rows_of_mean(index, weight.dtype)
        if self.position.keeps_steps:
            mean_over = mean_over * self._stands_for()
        mean = (weighted_sum(loss, weight) / mean_over).to(loss.dtype)
        self._last = loss.detach(), weight
        distinct = True
        if compiling:
            self.position.mark(index)
        else:
            self.flush()  # batches by position have a place of their own
            distinct = self.position.name(index)
        if not distinct:
            real = slice(None) if padding is None else ~padding
            self.table.write_repeats(index[real], score[real])
        else:
            self.table.write(index, score, leave=padding)
        return mean

    def _padding(self, index: torch.Tensor) -> torch.Tensor:
        """Which of these samples is this rank's padding."""
        part = self.position.part
        if not part.padded:
            return torch.zeros_like(index, dtype=torch.bool)
        if not self.plan.repeats:
            return index == part.padding
        place = torch.arange(len(index), device=index.device)  # the sample may be here in its own right as well
        return self.position.is_last(index) & (place == len(index) - 1)

    def _rows_of_mean(self, index: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The number of losses in the mean; in the last step, less this rank's share of all ranks' padding."""
        part, rows = self.position.part, len(index)
        padding = rows * part.global_padding / (part.world * self.position.last_batch(rows))
        return rows - padding * self.position.is_last(index).to(dtype)

    def loss(self) -> torch.Tensor | None:
        """The last batch's mean loss on the scale of full data: Σ weight·loss / Σ weight; None before any."""
        if self._last is None:
            return None
        loss, weight = self._last
        if weight is None:
            return loss.mean()
        total = weight.sum()  # 0 where a rank has nothing but padding
        return torch.where(total > 0, weighted_sum(loss, weight) / total, torch.nan).to(loss.dtype)

    def weights_of(self, index: torch.Tensor) -> torch.Tensor:
        """The weights of these samples, in host memory: 0 for a sample that is pruned, or only padding."""
        index, part = index.cpu(), self.position.part
        weight = torch.tensor(self.plan.by_sample.of(index.numpy()), dtype=torch.float64, device="cpu")
        if part.padded and not self.plan.repeats:
            weight[index == part.padding] = 0
        return weight / self._stands_for() if self.position.keeps_steps else weight

    # -- the end -------------------------------------------------------------------------------------------------

    def count_strays(self, strays: torch.Tensor) -> None:
        """Count losses of samples outside the plan; they raise at the end of the epoch, without a host sync here."""
        self._strays = self._strays.to(strays.device) + strays

    def close(self, on_purpose: bool) -> None:
        """End the pass: write the open scores, and raise if batches were missed or named wrongly."""
        self.flush()
        strays = int(self._strays)
        self._strays.zero_()
        self.position.check_end(on_purpose)
        if strays:
            raise DriftError(
                f"{strays} losses of the last epoch were for samples outside its plan: the index named samples that "
                f"were pruned, so batches came from another epoch or another sampler. {REMEDY}"
            )


class Window:
    """The next few batches of the plan: their weights, cut to batches, and room for their scores."""

    __slots__ = ("at", "index", "scores", "slots", "weights")

    def __init__(self, index: torch.Tensor, weights: torch.Tensor | None, batch: int) -> None:
        self.index = index
        self.scores = torch.empty(len(index), dtype=torch.float32, device=index.device)
        self.slots = torch.split(self.scores, batch)
        self.weights = None if weights is None else torch.split(weights, batch)
        self.at = 0

    def fits(self, count: int, loss: torch.Tensor) -> bool:
        """Whether the next batch has its place in this window."""
        return (
            self.at < len(self.slots)
            and self.slots[self.at].shape[0] == count
            and self.scores.device == loss.device
            and (self.weights is None or self.weights[self.at].dtype == working_dtype(loss))
        )

    def weigh_and_note(self, loss: torch.Tensor, score: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(the batch's mean, its weights divided by the number of samples); keeps the scores until the next flush."""
        self.slots[self.at].copy_(score)
        # A copy: torch.dot rounds by where its operands lie in memory, and a window may begin at any batch.
        weights = None if self.weights is None else self.weights[self.at].clone()
        self.at += 1
        return (loss.mean() if weights is None else weighted_sum(loss, weights).to(loss.dtype)), weights

    def noted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(index, score) of all batches weighed so far."""
        filled = sum(slot.shape[0] for slot in self.slots[: self.at])
        return self.index[:filled], self.scores[:filled]


def weighted_sum(loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Σ weight · loss, in the weight's precision."""
    return torch.dot(loss.to(weight.dtype), weight)
