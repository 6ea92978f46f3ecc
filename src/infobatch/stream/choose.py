"""Choosing within a batch, by the losses of a forward pass over all of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..core.draw import systematic
from .groups import Rule, ticks_of
from .ticket import BITS, PERIOD, issue


@dataclass(frozen=True)
class Chosen:
    """The chosen part of a batch: positions and tickets of its samples. ``update`` takes it as the ticket."""

    positions: torch.Tensor
    ticket: torch.Tensor
    looked_at: int  # samples in the whole batch

    def __len__(self) -> int:
        return len(self.positions)


def choose(loss: torch.Tensor, rule: Rule, lowest: float, tag: int, rng: np.random.Generator) -> Chosen:
    """Choose samples of a batch by their losses, each with probability π = min(1, c·√m) exactly.

    The number of samples varies by less than one, and is never 0. A loss that is not finite is always chosen.
    """
    host = loss.detach().double().cpu().numpy()
    finite = np.isfinite(host)
    keep = np.ones(len(host))
    if finite.any():
        keep[finite] = rule.keep(rule.sizes(host[finite], lowest), np.ones(int(finite.sum())))
    ticks = ticks_of(np.maximum(keep, 1 / len(host)))
    kept = systematic(ticks / PERIOD, rng, BITS).kept()
    tickets = [issue(tag, 0, ticks_here) for ticks_here in ticks[kept].tolist()]
    positions = torch.from_numpy(kept.astype(np.int64)).to(loss.device)
    return Chosen(positions, torch.tensor(tickets, dtype=torch.int64, device=loss.device), len(host))
