"""What is worth a curve: the share kept, the mean score and the saving so far."""

from __future__ import annotations

import numpy as np

from ..dataset import InfoBatch


def metrics(train_data: InfoBatch) -> dict[str, float]:
    """The current epoch's figures, by the names under which loggers show them.

    ``kept_share`` is the share of the data in the epoch's plan, ``saving`` the share of full training left out so far.
    ``mean_score`` is missing until a sample has been scored.
    """
    plan, stats = train_data.plan, train_data.stats
    found = {"infobatch/kept_share": len(plan) / max(plan.total, 1), "infobatch/saving": stats.saving}
    scores = train_data.scores
    known = scores[~np.isnan(scores)]
    if len(known):
        found["infobatch/mean_score"] = float(known.mean(dtype=np.float64))
    return found
