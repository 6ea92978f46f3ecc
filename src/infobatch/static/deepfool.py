"""How far an input is from where the model changes its mind."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def deepfool(
    model: Callable[[Tensor], Tensor],
    inputs: Tensor,
    *,
    steps: int = 50,
    classes: int = 10,
    overshoot: float = 0.02,
) -> Tensor:
    """The length of a small change of each input that changes its class (Moosavi-Dezfooli et al., 2016).

    Each step goes to the nearest boundary of the linearised model, among the ``classes`` likeliest classes, and
    ``overshoot`` times the step's length beyond it, until the class changes. An input whose class does not change in
    ``steps`` steps has an infinite distance. Exact for a linear model. The model must treat samples independently: put
    it into ``eval()`` mode.
    """
    with torch.enable_grad():
        changes = torch.zeros_like(inputs)
        active = torch.arange(len(inputs), device=inputs.device)
        ranked = model(inputs).detach().argsort(1, descending=True)[:, :classes]
        for number in range(steps + 1):
            moved = (inputs[active] + (1 + overshoot) * changes[active]).detach().requires_grad_()
            logits = model(moved)
            same = logits.argmax(1) == ranked[active, 0]
            if number < steps and same.any():
                step = _to_boundary(logits.gather(1, ranked[active]), moved)
                changes[active[same]] += step[same]
            active = active[same]
            if not len(active):
                break
    distances: Tensor = torch.linalg.vector_norm(changes.flatten(1), dim=1)
    distances[active] = torch.inf
    return distances


def _to_boundary(logits: Tensor, inputs: Tensor) -> Tensor:
    """The shortest step that makes another class as likely as the first in the linearised model; 0 on a plateau."""
    slopes = torch.stack(
        [torch.autograd.grad(logits[:, c].sum(), inputs, retain_graph=True)[0] for c in range(logits.shape[1])], 1
    )
    gaps = (logits[:, :1] - logits[:, 1:]).detach().abs()
    slopes = slopes[:, 1:] - slopes[:, :1]
    lengths = torch.linalg.vector_norm(slopes.flatten(2), dim=2)
    nearest = torch.where(lengths > 0, gaps / lengths, torch.inf).argmin(1)
    rows = torch.arange(len(gaps), device=gaps.device)
    gap, length = gaps[rows, nearest], lengths[rows, nearest]
    scale = torch.where(length > 0, gap / length.square(), 0)
    step: Tensor = scale.view(-1, *[1] * (inputs.dim() - 1)) * slopes[rows, nearest]
    return step
