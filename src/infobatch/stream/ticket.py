"""The ticket that a sample carries: its weight and its key, id or group, in one whole number.

From the lowest bit: 14 bits for its probability, in ticks of 2**-14, less one; 44 bits for its name (the hash of its
key or id, or a group's number); 5 bits, never 0, by which a stream knows its own tickets. One int64 passes any collate
function, worker, pinned memory and device move as a label does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

BITS = 14
PERIOD = 1 << BITS  # ticks of a sample that is surely let through
NAME_BITS = 44
_TAG_AT = BITS + NAME_BITS
_TAGS = 31


def tag_of(digest: int) -> int:
    """The mark of a stream with this digest of its settings, shifted to its place in a ticket.

    >>> tag_of(31) >> 58, tag_of(30) >> 58
    (1, 31)
    """
    return (1 + digest % _TAGS) << _TAG_AT


def issue(tag: int, name: int, ticks: int) -> int:
    """Make a ticket.

    >>> ticket = issue(tag_of(0), 7, PERIOD // 4)
    >>> weights(torch.tensor([ticket])).item(), names(np.array([ticket])).item()
    (4.0, 7)
    """
    return tag + (name << BITS) + ticks - 1


def weights(tickets: torch.Tensor) -> torch.Tensor:
    """The samples' weights: exactly 1 over their probability, on the tickets' device, without a sync."""
    return PERIOD / ((tickets & (PERIOD - 1)) + 1).double()


def names(tickets: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The names in tickets: hashes of keys or ids, or group numbers."""
    return (tickets >> BITS) & ((1 << NAME_BITS) - 1)


def are_of(tickets: torch.Tensor, tag: int) -> bool:
    """Whether all tickets were issued by the stream with this tag."""
    return bool((tickets >> _TAG_AT == tag >> _TAG_AT).all())


def check_tickets(tickets: Any, count: int, tag: int) -> torch.Tensor:
    """The tickets, or an error unless there is one per loss and, if they are in host memory, all are this stream's."""
    if not isinstance(tickets, torch.Tensor) or tickets.dtype != torch.int64:
        kind = tickets.dtype if isinstance(tickets, torch.Tensor) else type(tickets).__name__
        raise TypeError(
            f"ticket must be the int64 tensor that the batch carries (the last element of tuples, or under ticket_key "
            f"in dicts), got {kind}: keep it as the loader gives it"
        )
    if tickets.dim() != 1 or len(tickets) != count:
        raise ValueError(
            f"ticket must hold one number per loss: got shape {tuple(tickets.shape)} for {count} losses. "
            "Take the same rows of both"
        )
    if count == 0:
        raise ValueError("loss must hold at least one value, one per sample; got 0")
    if tickets.device.type == "cpu" and not are_of(tickets, tag):
        raise ValueError(
            f"ticket holds numbers that this stream did not give out, such as {int(tickets[0])}: pass the batch's "
            "tickets, not labels or an index, and those of this stream"
        )
    return tickets
