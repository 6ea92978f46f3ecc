"""Classification: one loss per sample, and scores for samples that were mixed.

``update`` needs a value per sample; many criteria return a mean. These are their per-sample forms: the mean over the
batch of each is what the usual criterion returns. Logits are (samples, classes); a target is a label per sample, or a
distribution over the classes per sample.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

LEAST_SHARE = 0.1  # a sample with a smaller share of its two mixed inputs is scored as if it had this share


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """-Σ_c t_c log p_c of each sample, p = softmax(logits), t the target, smoothed: (1 - s)·t + s/C.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> cross_entropy(logits, torch.tensor([0, 1]))
    tensor([0.1269, 0.6931])
    >>> cross_entropy(logits, torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([0.1269, 0.6931])
    """
    log_p = F.log_softmax(logits, dim=-1)
    if target.shape == logits.shape:
        loss = -(target * log_p).sum(-1)
    else:
        loss = -log_p.gather(-1, _labels(logits, target).unsqueeze(-1)).squeeze(-1)
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing * log_p.mean(-1)
    return loss


def binary_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    smoothing: float = 0.0,
    *,
    threshold: float | None = None,
    sum_classes: bool = False,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Binary cross-entropy of each sample, with each class a yes-or-no question: the mean over classes, or the sum.

    Labels become the off value s/C and the on value 1 - s + s/C; a target of the logits' shape is used as it is.
    ``threshold`` makes targets above it 1 and all others 0. ``weight`` and ``pos_weight`` are torch's.

    >>> binary_cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([0.4100])
    """
    if target.shape != logits.shape:
        target = _smooth_labels(_labels(logits, target), logits, smoothing)
    if threshold is not None:
        target = (target > threshold).to(target.dtype)
    loss = F.binary_cross_entropy_with_logits(logits, target, weight, pos_weight=pos_weight, reduction="none")
    return loss.sum(-1) if sum_classes else loss.mean(-1)


def mixed_score(probability: torch.Tensor, target: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Scores of samples that were mixed in pairs i and j = B-1-i with one λ a pair (appendix A.3).

    The score of sample i adds the errors at its class y_i in both inputs that show it:
    score_i = |t_i[y_i] - p_i[y_i]| + |t_j[y_i] - p_j[y_i]|. ``probability`` p is the model's output for the mixed
    inputs, ``target`` t their mixed targets, ``label`` y the labels before mixing.

    >>> p, t = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.7, 0.3], [0.3, 0.7]])
    >>> mixed_score(p, t, torch.tensor([0, 1]))
    tensor([0.1000, 0.1000])
    """
    error = (target - probability).abs()
    own = label.unsqueeze(-1)
    return (error.gather(-1, own) + error.flip(0).gather(-1, own)).squeeze(-1)


def mixed_score_per_element(probability: torch.Tensor, target: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Scores of samples that were mixed in pairs i and j = B-1-i, each input with a λ of its own (the authors' code).

    With s = max_c |t_c - p_c|, score_i = (s_i + s_j) / (λ_i + 1 - λ_j): the error of both inputs, divided by how much
    of sample i they show. ``share`` is λ. The divisor is at least ``LEAST_SHARE``: otherwise a few divisions by almost
    zero would dominate the mean of all scores.

    >>> p, t = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.8, 0.2], [0.4, 0.6]])
    >>> mixed_score_per_element(p, t, torch.tensor([0.8, 0.6]))
    tensor([0.0833, 0.1250])
    """
    error = (target - probability).abs().amax(-1)
    shown = share + 1 - share.flip(0)
    return (error + error.flip(0)) / shown.clamp(min=LEAST_SHARE)


def _labels(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.shape != logits.shape[:-1] or target.is_floating_point():
        raise ValueError(
            f"target must be a label per sample, whole numbers of shape {tuple(logits.shape[:-1])}, or a distribution "
            f"per sample, of shape {tuple(logits.shape)}; got {target.dtype} of shape {tuple(target.shape)}"
        )
    return target.long()


def _smooth_labels(label: torch.Tensor, logits: torch.Tensor, smoothing: float) -> torch.Tensor:
    off = smoothing / logits.shape[-1]
    return torch.full_like(logits, off, requires_grad=False).scatter_(-1, label.unsqueeze(-1), 1 - smoothing + off)
