"""The messages between ranks: their arguments once, and the scores that each has booked once an epoch."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ..core.plan import EpochPlan
from ..core.position import Position
from ..core.scores import ScoreTable
from .ranks import Ranks


def agree(ranks: Ranks, call: int, identity: dict[str, Any]) -> None:
    """Raise ValueError on every rank, naming the differences, unless all ranks were made alike."""
    ranks.meet(call)
    everyone: list[Any] = [None] * ranks.here()[1]
    dist.all_gather_object(everyone, identity, group=ranks.group)
    different = [
        f"{name} is {everyone[0].get(name)!r} on rank 0 and {other.get(name)!r} on rank {rank}"
        for rank, other in enumerate(everyone)
        for name in everyone[0]
        if other.get(name) != everyone[0].get(name)
    ]
    if different:
        raise ValueError(
            f"the ranks made different InfoBatches: {'; '.join(different)}. "
            "Give every rank the same dataset length and the same arguments"
        )


@dataclass(frozen=True)
class Everyone:
    """The progress of all ranks together in one epoch."""

    rejected: int  # losses that were not finite, since the last exchange
    batches: int  # on the rank that has done most
    complete: bool  # on every rank
    in_order: bool  # whether all have done equally many entries, from the front
    passed_over: int


def share_scores(
    ranks: Ranks,
    call: int,
    plan: EpochPlan,
    position: Position,
    table: ScoreTable,
    rejected: int,
    noted: NDArray[np.int64],
) -> Everyone:
    """Give every rank the scores that all ranks have booked.

    First a message of fixed size says which plan each rank has. Then each rank sends the scores of its part as fp32
    bits; which samples they belong to is known from the plan, as integers. Scores of samples not trained on yet are the
    old ones everywhere. ``noted`` are samples outside the plan whose scores may have been renewed too, by the rank that
    :func:`share_of` gives them to. ``rejected`` are this rank's losses that were not finite and not yet counted here.
    """
    part = position.part
    by_position = not (position.by_index or position.compiled)
    digest = zlib.crc32(np.ascontiguousarray(plan.indices).data)
    progress = (position.batches, position.done, int(position.complete), int(by_position), position.passed_over)
    headers = ranks.meet(call, plan.epoch, len(plan), digest, rejected, *progress)
    _check_plans(headers)
    extra = share_of(noted, part.rank, part.world)
    filled = np.pad(extra, (0, -(-len(noted) // part.world) - len(extra)), mode="edge") if len(noted) else extra
    own = torch.from_numpy(np.concatenate([part[:].astype(np.int64), filled]))
    received = ranks.all_gather(table.values.index_select(0, own.to(table.values.device)).cpu().view(torch.int32))
    rest = torch.from_numpy(plan.indices[part.start :].astype(np.int64))
    if plan.repeats:
        rest = rest[: position.done * part.world]  # an occurrence still to come must not bring the old score back
    values = received.view(torch.float32)
    for samples, sent in ((rest, values[:, : len(part)]), (torch.from_numpy(noted), values[:, len(part) :])):
        in_order = _interleaved(sent, len(samples))
        table.values.index_copy_(0, samples.to(table.values.device), in_order.to(table.values.device))
    return Everyone(
        rejected=int(headers[:, 3].sum()),
        batches=int(headers[:, 4].max()),
        complete=bool(headers[:, 6].all()),
        in_order=bool(headers[:, 7].all()) and len(set(headers[:, 5].tolist())) == 1,
        passed_over=int(headers[:, 8].sum()) // len(headers),
    )


def _check_plans(headers: torch.Tensor) -> None:
    """Raise, on every rank, unless all of them have the same plan."""
    rows = [tuple(row) for row in headers[:, :3].tolist()]
    if len(set(rows)) > 1:
        plans = "; ".join(
            f"rank {rank}: epoch {epoch}, {length} samples, digest {digest:08x}"
            for rank, (epoch, length, digest) in enumerate(rows)
        )
        raise RuntimeError(
            f"the ranks have {len(set(rows))} different plans, so that scores would be booked to wrong samples "
            f"({plans}): something gave the ranks different epochs, scores, orders or batch sizes"
        )


def share_entries(ranks: Ranks, position: Position, left: int) -> NDArray[np.bool_]:
    """Which of the plan's last ``left`` entries, those from the start of the ranks' parts on, are done on any rank."""
    own = torch.from_numpy(position.entries_back().astype(np.uint8))
    return _interleaved(ranks.all_gather(own), left).numpy().astype(bool)


def share_of(samples: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """Every ``world``-th of these samples: what rank ``rank`` looks after."""
    return samples[rank::world]


def _interleaved(sent: torch.Tensor, count: int) -> torch.Tensor:
    """Rows of the ranks in the plan's order: rank r holds entries r, r + world, …; padding is last."""
    return sent.t().reshape(-1)[:count]
