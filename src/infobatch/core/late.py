"""Late batches: their losses come after the next epoch has begun."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .delivery import DriftError
from .plan import EpochPlan
from .position import REMEDY, Position


@dataclass
class LateBatches:
    """Batches of the previous epoch that were delivered, but not passed to ``update`` when the next epoch began.

    A loop that fetches ahead across epochs starts the next epoch while it still holds the last batch.
    """

    plan: EpochPlan
    samples: NDArray[np.integer]

    @classmethod
    def of(cls, plan: EpochPlan, position: Position) -> LateBatches | None:
        """The late batches of an epoch that ends now, if its batches come by index and some have not; else None."""
        if not position.by_index or position.compiled or plan.repeats:
            return None
        samples = position.delivered_only()
        return cls(plan, samples) if len(samples) else None

    def claim(self, index: torch.Tensor, plan: EpochPlan, position: Position) -> bool:
        """Whether a batch with these samples is late, not of the current epoch; raises if it may be either."""
        names = np.unique(index.cpu().numpy())
        if not np.isin(names, self.samples).all():
            return False
        if not np.isin(names, position.part[: position.samples_delivered]).all():
            if position.part.world > 1:
                raise DriftError(
                    "a batch of the epoch before came back after the next one began: with several ranks its scores "
                    f"would be known to this rank only. Let every batch come back before the next epoch. {REMEDY}"
                )
            self.samples = np.setdiff1d(self.samples, names)
            return True
        if position.touched:
            return False  # batches come in the order of their delivery: this one is of the current epoch
        if (self.plan.by_sample.of(names) != plan.by_sample.of(names)).any():
            raise DriftError(
                "this batch may be the last one of the epoch before or the first one of this epoch, which have the "
                "same samples with different weights: call train_data.set_epoch(epoch) between epochs, when every "
                "batch has come back"
            )
        self.samples = np.setdiff1d(self.samples, names)
        return True
