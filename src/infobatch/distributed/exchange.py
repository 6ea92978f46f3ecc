"""What ranks tell each other: once at the start what they were made with, once an epoch the scores they saw."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ..core.ledger import EpochLedger
from ..core.plan import EpochPlan

_PATIENCE = timedelta(seconds=120)
_HEADER = 2  # rejected losses, digest of the plan


def agree(identity: dict[str, Any]) -> None:
    """Raise ValueError on every rank, naming the differences, unless all ranks were made alike."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, identity)
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


def share_scores(plan: EpochPlan, ledger: EpochLedger, rejected: int, noted: NDArray[np.int64]) -> int:
    """Give every rank the scores that all ranks have booked; returns the rejected losses of all ranks.

    One collective: each rank sends the scores of its slice as fp32 bits, with a digest of the plan; which samples they
    belong to is known from the plan, as integers. Scores of samples not trained on yet are the old ones everywhere.
    ``noted`` are samples outside the plan whose scores may have been renewed too, by the rank that :func:`share_of`
    gives them to.
    """
    part, table = ledger.part, ledger.table
    extra = share_of(noted, part.rank, part.world)
    filled = np.pad(extra, (0, -(-len(noted) // part.world) - len(extra)), mode="edge") if len(noted) else extra
    own = torch.from_numpy(np.concatenate([part[:].astype(np.int64), filled]))
    message = torch.empty(_HEADER + len(own), dtype=torch.int32, device="cpu")
    message[0] = rejected
    message[1] = _digest(plan.indices)
    message[_HEADER:] = table.values.index_select(0, own.to(table.values.device)).cpu().view(torch.int32)
    received = _all_gather(message, part.world)
    if len(digests := set(received[:, 1].tolist())) > 1:
        raise RuntimeError(
            f"the ranks have {len(digests)} different plans for epoch {plan.epoch}, so that scores would be booked to "
            f"wrong samples (digests {received[:, 1].tolist()}): something gave the ranks different scores or orders"
        )
    rest = torch.from_numpy(plan.indices[part.start :].astype(np.int64))
    if plan.repeats:
        rest = rest[: ledger.seen * part.world]  # an occurrence still to come must not bring the old score back
    values = received[:, _HEADER:].contiguous().view(torch.float32)
    for samples, sent in ((rest, values[:, : len(part)]), (torch.from_numpy(noted), values[:, len(part) :])):
        in_order = sent.t().reshape(-1)[: len(samples)]  # rank r holds entries r, r + world, …; padding is last
        table.values.index_copy_(0, samples.to(table.values.device), in_order.to(table.values.device))
    return int(received[:, 0].sum())


def share_of(samples: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """Every ``world``-th of these samples: what rank ``rank`` looks after."""
    return samples[rank::world]


def wait_for_all(what: str) -> None:
    """Raise, instead of hanging, when a call that every rank must make was not made by all."""
    if dist.get_backend() != "gloo":
        return  # other back ends end a lonely collective by their own time limit
    try:
        dist.monitored_barrier(timeout=_PATIENCE)
    except RuntimeError as error:
        raise RuntimeError(
            f"{what} was not called on every rank within {_PATIENCE}, or a rank has died: it gathers the scores of all "
            "ranks, so call it on every rank and write the result on one"
        ) from error


def _all_gather(message: torch.Tensor, world: int) -> torch.Tensor:
    """The messages of all ranks, one row each, in host memory."""
    device = torch.device("cpu")
    if "cpu:" not in str(dist.get_backend_config()):
        device = torch.device("cuda", torch.cuda.current_device())
    received = torch.empty((world, len(message)), dtype=torch.int32, device=device)
    dist.all_gather(list(received.unbind()), message.to(device))
    return received.cpu()


def _digest(indices: NDArray[np.integer]) -> int:
    """31 bits that differ when the plans differ."""
    return zlib.crc32(np.ascontiguousarray(indices).data) >> 1
