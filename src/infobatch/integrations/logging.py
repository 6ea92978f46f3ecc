"""Figures for loggers: the loss, the share kept, the noise, the mean score and the saving so far."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dataset import InfoBatch
from ..stream import Stream


def metrics(train_data: InfoBatch | Stream) -> dict[str, float]:
    """The current epoch's figures, by the names under which loggers show them.

    ``kept_share`` is the share of the data in the epoch's plan, ``saving`` the share of full training left out so far.
    ``noise`` is the noise factor of the last epoch, when it is over and there is one process.
    ``loss`` is ``train_data.loss``, the last batch's loss on the scale of full data. It and ``mean_score`` are missing
    until a sample has been scored. A :class:`Stream` has ``loss``, ``noise`` and ``saving`` so far.
    """
    if isinstance(train_data, Stream):
        return _stream_metrics(train_data)
    plan, stats = train_data.plan, train_data.stats
    figures = {"infobatch/kept_share": len(plan) / max(plan.total, 1), "infobatch/saving": stats.saving}
    if stats.epochs and (noise := stats.epochs[-1].noise) is not None:
        figures["infobatch/noise"] = noise
    scores = train_data.scores
    known = scores[~np.isnan(scores)]
    if len(known):
        figures["infobatch/mean_score"] = float(known.mean(dtype=np.float64))
    if not math.isnan(loss := float(train_data.loss)):
        figures["infobatch/loss"] = loss
    return figures


def _stream_metrics(stream: Stream) -> dict[str, float]:
    stats = stream.stats
    figures = {"infobatch/saving": stats.saving, "infobatch/noise": stats.noise, "infobatch/loss": float(stream.loss)}
    return {name: value for name, value in figures.items() if not math.isnan(value)}


def log(train_data: InfoBatch | Stream, logger: Any, step: int) -> None:
    """Send :func:`metrics` to ``logger`` at ``step``, counted as for your other curves (in epochs or steps).

    ``logger`` is a TensorBoard ``SummaryWriter``, a W&B run, the ``mlflow`` module, or anything that takes a dict by
    ``log_metrics(values, step=...)`` or ``log(values, step=...)``, such as a Lightning logger or an ``Accelerator``.
    With several processes call it in one of them.
    """
    values = metrics(train_data)
    if hasattr(logger, "add_scalar"):
        for name, value in values.items():
            logger.add_scalar(name, value, step)
    elif hasattr(logger, "log_metrics"):
        logger.log_metrics(values, step=step)
    elif hasattr(logger, "log"):
        logger.log(values, step=step)
    else:
        raise TypeError(
            f"logger must have add_scalar (TensorBoard), log_metrics (MLflow, Lightning) or log (W&B, Accelerate), got "
            f"{logger!r}: send metrics(train_data) to it yourself"
        )
