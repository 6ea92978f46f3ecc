"""The processes that train together: which of them this one is, and how they meet."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

CALLS = (
    "InfoBatch(...)",
    "set_epoch() or the start of a loop over the loader",
    "state_dict()",
    "load_state_dict()",
    "adopt_seed(), which integrations call",
)
MADE, NEW_EPOCH, STATE, LOAD, SEED = range(len(CALLS))
_ABSENT = -1
_TAG = 1714  # of our messages, so that none of the user's is taken for one
_GRACE = 15.0  # seconds that rank 0 is given to tell the others who is missing


class Ranks:
    """The process group that shares one plan: all processes, or those of ``group``.

    ``patience`` is how many seconds ranks wait for each other when they meet.
    """

    def __init__(self, group: Any = None, patience: float = 120.0) -> None:
        self.group = group
        self.patience = patience

    def here(self) -> tuple[int, int]:
        """(rank, world) of this process; (0, 1) where no process group runs."""
        if dist.is_available() and dist.is_initialized():
            rank = dist.get_rank(self.group)
            if rank < 0:
                raise ValueError("group: this process is not in it; give each process the group that it belongs to")
            return rank, dist.get_world_size(self.group)
        return 0, 1

    def meet(self, call: int, *values: int) -> torch.Tensor:
        """The ``values`` of all ranks, one row each; raises on every rank unless all of them make the same call.

        A message of fixed size, sent before any other, so that ranks that went different ways are told so.
        """
        own = torch.tensor([call, *values], dtype=torch.int64, device="cpu")
        everyone = self._by_way_of_rank_0(own) if self._uses_gloo() else self.all_gather(own)
        calls: list[int] = everyone[:, 0].tolist()
        absent = [rank for rank, made in enumerate(calls) if made == _ABSENT]
        if absent:
            raise RuntimeError(
                f"rank {', '.join(map(str, absent))} did not come to {CALLS[call]} within {self.patience:g} s: every "
                "rank must make this call, because they exchange what they know there. Call it on every rank (and "
                "write files on one); a rank may also have died, or be busy for longer, as with a long validation on "
                "one rank: then make InfoBatch(..., patience=seconds)"
            )
        if len(set(calls)) > 1:
            made = "; ".join(f"rank {rank} is in {CALLS[other]}" for rank, other in enumerate(calls))
            raise RuntimeError(f"the ranks went different ways: {made}. All of them must make the same calls, in turn")
        return everyone[:, 1:]

    def all_gather(self, message: torch.Tensor) -> torch.Tensor:
        """The messages of all ranks, of equal length and type, one row each, in host memory."""
        device = self._device()
        received = torch.empty((self.here()[1], len(message)), dtype=message.dtype, device=device)
        dist.all_gather(list(received.unbind()), message.to(device), group=self.group)
        return received.cpu()

    def all_reduce(self, message: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' messages, of equal length and type, in host memory."""
        received = message.to(self._device(), copy=True)
        dist.all_reduce(received, group=self.group)
        return received.cpu()

    def _device(self) -> torch.device:
        """Where messages must lie."""
        if "cpu:" in str(dist.get_backend_config(self.group)):
            return torch.device("cpu")
        return torch.device("cuda", torch.cuda.current_device())

    def _uses_gloo(self) -> bool:
        """Whether messages in host memory can be waited for with a limit of our own; other back ends have theirs."""
        return "cpu:gloo" in str(dist.get_backend_config(self.group))

    def _by_way_of_rank_0(self, own: torch.Tensor) -> torch.Tensor:
        """All ranks' messages, gathered by rank 0 and sent on to those that came; a row of -1 for one that did not."""
        rank, world = self.here()
        everyone = torch.full((world, len(own)), _ABSENT, dtype=torch.int64, device="cpu")
        if rank > 0:
            sent = dist.isend(own, self._process(0), group=self.group, tag=_TAG)
            received = dist.irecv(everyone, self._process(0), group=self.group, tag=_TAG)
            if not _arrives(received, self.patience + _GRACE):
                everyone[1:, 0] = own[0]  # of the others nothing is known, but that rank 0 is missing
            del sent
            return everyone
        everyone[0] = own
        messages = {other: torch.empty_like(own) for other in range(1, world)}
        awaited = {
            other: dist.irecv(message, self._process(other), group=self.group, tag=_TAG)
            for other, message in messages.items()
        }
        deadline = time.monotonic() + self.patience
        for other, received in awaited.items():
            if _arrives(received, deadline - time.monotonic()):
                everyone[other] = messages[other]
        present = [other for other in awaited if everyone[other, 0] != _ABSENT]
        for sent in [dist.isend(everyone, self._process(other), group=self.group, tag=_TAG) for other in present]:
            _arrives(sent, _GRACE)
        return everyone

    def _process(self, rank: int) -> int:
        """The number among all processes of this group's ``rank``."""
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def __deepcopy__(self, memo: dict[int, Any]) -> Ranks:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A group cannot leave its process: a copy elsewhere belongs to all processes there."""
        return {"group": None, "patience": self.patience}


def _arrives(work: Any, seconds: float) -> bool:
    """Whether a message comes through in time."""
    try:
        work.wait(timedelta(seconds=max(seconds, 0.01)))
    except RuntimeError:
        return False
    return True
