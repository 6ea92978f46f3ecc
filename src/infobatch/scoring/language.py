"""Language models: one loss per row of text, as the sum over its tokens, their number, and the mean.

A label of -100 is not a target. Causal models predict the next token: ``shift=True`` compares the logits at position t
with the label at t + 1, so that a row's first label is never a target. Encoder-decoder, masked and token-classification
models are aligned already: ``shift=False``. ``lengths`` separates rows that a collator has laid end to end in one long
row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

IGNORED = -100


class RowLosses(NamedTuple):
    """For each row the sum of its tokens' losses, and how many there are."""

    total: torch.Tensor
    tokens: torch.Tensor

    @property
    def mean(self) -> torch.Tensor:
        """The mean over a row's tokens, to use as its score. 0 for a row without a target."""
        return self.total / self.tokens.clamp(min=1)


def row_losses(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    shift: bool,
    lengths: torch.Tensor | None = None,
    label_smoothing: float = 0.0,
) -> RowLosses:
    """Cross-entropy of each row: ``logits`` are [rows, positions, words], ``labels`` [rows, positions].

    With ``lengths`` both hold one long row, which is made of that many shorter ones.

    >>> logits, labels = torch.zeros(2, 3, 4), torch.tensor([[1, 2, 3], [1, 2, -100]])
    >>> row_losses(logits, labels, shift=True).tokens.tolist()
    [2.0, 1.0]
    """
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"labels must have one entry per position of the logits, got shape {tuple(labels.shape)} for logits of "
            f"shape {tuple(logits.shape)}"
        )
    targets = functional.pad(labels[..., 1:], (0, 1), value=IGNORED) if shift else labels
    losses = functional.cross_entropy(
        logits.float().flatten(0, -2),
        targets.flatten().to(logits.device),
        ignore_index=IGNORED,
        reduction="none",
        label_smoothing=label_smoothing,
    ).view(labels.shape)
    if shift:
        losses = losses.roll(1, -1)  # from the predicting position to the predicted one; the last loss is 0
    return RowLosses(by_row(losses, lengths), targets_per_row(labels.to(logits.device), shift=shift, lengths=lengths))


def span_losses(
    start_logits: torch.Tensor, end_logits: torch.Tensor, start: torch.Tensor, end: torch.Tensor
) -> RowLosses:
    """Question answering: each row's mean of the cross-entropies of its answer's start and of its end.

    Logits are [rows, positions]. As in Hugging Face's models, an answer behind the last position is no target, and a
    negative position counts as the first.

    >>> logits = torch.zeros(2, 4)
    >>> span_losses(logits, logits, torch.tensor([1, 9]), torch.tensor([2, 9])).tokens.tolist()
    [1.0, 0.0]
    """
    outside = start_logits.shape[1]
    halves = [
        functional.cross_entropy(
            logits, place.reshape(-1).to(logits.device).clamp(0, outside), ignore_index=outside, reduction="none"
        )
        for logits, place in ((start_logits, start), (end_logits, end))
    ]
    return RowLosses((halves[0] + halves[1]) / 2, spans_per_row(start, end, outside).to(start_logits.device))


def spans_per_row(start: torch.Tensor, end: torch.Tensor, positions: int) -> torch.Tensor:
    """How many targets each row has: 1, or 0 if its answer lies behind its ``positions``; 0.5 if only one end does."""
    return ((start.reshape(-1) < positions).float() + (end.reshape(-1) < positions).float()) / 2


def targets_per_row(labels: torch.Tensor, *, shift: bool, lengths: torch.Tensor | None = None) -> torch.Tensor:
    """How many tokens of each row are predicted: the labels that count, after the shift."""
    counted = labels.ne(IGNORED)
    if shift:
        counted = counted.clone()
        counted[..., 0] = False
    return by_row(counted.float(), lengths)


def by_row(values: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of each row's values; with ``lengths``, of each part of the one long row, whose rest is padding.

    >>> by_row(torch.tensor([[1.0, 2.0, 3.0, 9.0]]), lengths=torch.tensor([2, 1])).tolist()
    [3.0, 3.0]
    """
    if lengths is None:
        return values.flatten(1).sum(1)
    if values.shape[0] != 1:
        raise ValueError(f"lengths are for rows laid end to end in one long row, got {values.shape[0]} rows")
    values, lengths = values.flatten(), lengths.to(values.device)
    padding = len(values) - lengths.sum()
    if padding < 0:
        raise ValueError(f"lengths must add up to no more than the {len(values)} positions there are, got {lengths}")
    return torch.segment_reduce(values, "sum", lengths=torch.cat([lengths, padding[None]]), unsafe=True)[:-1]
