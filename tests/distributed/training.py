"""A small training run that writes checkpoints, can kill itself at any step, and goes on where it stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import infobatch
from infobatch import InfoBatch, checkpoint
from infobatch.distributed.ranks import Ranks


class Points(Dataset):
    """Sample i is (x, y, i): made data whose batches tell which samples they hold."""

    def __init__(self, size: int) -> None:
        self.x = torch.randn(size, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
        self.y = torch.sin(self.x.sum(1, keepdim=True)) * (1 + torch.arange(size)[:, None] % 5)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.x[i], self.y[i], i


@dataclass(frozen=True)
class Case:
    """What is trained, and how."""

    size: int = 37
    batch: int = 4  # per rank
    epochs: int = 4
    workers: int = 0
    stateful: bool = False  # torchdata's loader in place of torch's
    drop_last: bool = False
    index: str = "position"  # or "explicit": update(loss, index), or "key": the index comes through index_key
    wrap: str = "ddp"  # or "fsdp"
    accumulate: int = 1
    strata: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # of InfoBatch
    save_every: int = 0

    def __str__(self) -> str:
        usual = asdict(Case())
        return ",".join(f"{k}={v}" for k, v in asdict(self).items() if v != usual[k]) or "plain"


def train(case: Case, folder: Path, dies_after: int | None = None, stops_after: int | None = None) -> None:
    """Train to the end from the last checkpoint in ``folder``; this attempt may die, or stop, after so many steps.

    Rank r writes what it has seen to ``trace-r.pt``; rank 0 writes the end to ``result.pt``.
    """
    rank, world = Ranks().here()
    torch.manual_seed(1)
    options = dict(case.options)
    if case.strata:
        options["strata"] = np.arange(case.size) % 3
    if case.index == "key":
        options["index_key"] = "index"
    train_data = InfoBatch(Points(case.size), case.epochs, seed=3, **options)
    loader = _loader(case, train_data)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    model = _wrapped(case, net) if world > 1 else net
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    full_steps = case.epochs * -(-case.size // (case.batch * world * case.accumulate))
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=full_steps + case.epochs)
    schedule = infobatch.paced(cycle, train_data)
    step, plans = 0, {}
    last = folder / "last.pt"
    if last.exists():
        state = checkpoint.load(last)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        train_data.load_state_dict(state["train_data"])
        schedule.load_state_dict(state["schedule"])
        step, plans = state["step"], state["plans"]
        if case.stateful:
            loader.load_state_dict(state["loaders"][rank])
    here = 0
    trace: list[tuple[int, list[int], float]] = []  # of each step: epoch, samples, the weights' square sum after it
    orders: dict[int, list[int]] = {}
    for epoch in range(train_data.epoch, case.epochs):
        train_data.set_epoch(epoch)
        plans[epoch] = _digest(train_data.plan)
        orders[epoch] = train_data.plan.indices.tolist()
        batches = len(loader)
        for k, (x, y, i, *carried) in enumerate(loader):
            steps_now = (k + 1) % case.accumulate == 0 or k + 1 == batches
            waits = model.no_sync() if world > 1 and case.wrap == "ddp" and not steps_now else nullcontext()
            with waits:
                loss = (model(x) - y).square().mean(1)
                if case.index == "position":
                    loss = train_data.update(loss)
                else:
                    loss = train_data.update(loss, carried[0] if case.index == "key" else i)
                (loss / case.accumulate).backward()
            if steps_now:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
            step += 1
            here += 1
            trace.append((epoch, i.tolist(), sum(float(_whole(p.detach()).square().sum()) for p in model.parameters())))
            if here == dies_after and rank == world - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if (case.save_every and step % case.save_every == 0) or here == stops_after:
                state = {
                    "model": net.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "train_data": train_data.state_dict(),
                    "schedule": schedule.state_dict(),
                    "step": step,
                    "plans": plans,
                }
                if case.stateful:
                    state["loaders"] = _gathered(loader.state_dict(), world)
                if rank == 0:
                    checkpoint.save(state, last)
            if here == stops_after:
                torch.save({"steps": trace, "orders": orders}, folder / f"trace-{rank}.pt")
                return
    torch.save({"steps": trace, "orders": orders}, folder / f"trace-{rank}.pt")
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    end = train_data.state_dict()
    stats = train_data.stats
    result = {
        "weights": [w.detach().clone() for w in weights],
        "momenta": [_whole(s["momentum_buffer"]) for s in optimizer.state.values()],
        "learning rate": schedule.get_last_lr(),
        "scores": end["scores"],
        "plans": plans,
        "epochs": [[e.epoch, e.total, e.kept, e.seen] for e in stats.epochs],
        "expected_saving": stats.expected_saving,
        "rejected": stats.rejected,
    }
    if rank == 0:
        torch.save(result, folder / "result.pt")


def result(folder: Path) -> dict[str, Any]:
    """The end of the run in ``folder``."""
    return torch.load(folder / "result.pt", weights_only=True)


def traces(folder: Path, world: int) -> list[dict[str, Any]]:
    """What each rank has seen."""
    return [torch.load(folder / f"trace-{rank}.pt", weights_only=True) for rank in range(world)]


def delivered(ranks: list[dict[str, Any]], epoch: int) -> list[int]:
    """The samples of an epoch in the order of the global plan, padding included; all ranks made equally many steps."""
    of_rank = [[batch for e, batch, _ in rank["steps"] if e == epoch] for rank in ranks]
    assert len({tuple(len(batch) for batch in batches) for batches in of_rank}) == 1
    return [i for step in zip(*of_rank, strict=True) for entries in zip(*step, strict=True) for i in entries]


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """Where two results differ, to the last bit; NaN equals NaN."""
    if isinstance(a, dict):
        return [f"{where}: keys"] * (a.keys() != b.keys()) + [
            d for k in a for d in differences(a[k], b.get(k), f"{where}/{k}")
        ]
    if isinstance(a, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        return [] if same else [f"{where}: {(a != b).sum()} of {a.numel()} values"]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for k, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{where}/{k}")]
    return [] if a == b else [f"{where}: {a} and {b}"]


def _loader(case: Case, train_data: InfoBatch) -> Any:
    kind: Any = DataLoader
    if case.stateful:
        from torchdata.stateful_dataloader import StatefulDataLoader as kind  # noqa: N813
    return kind(
        train_data,
        batch_size=case.batch,
        sampler=train_data.sampler,
        num_workers=case.workers,
        drop_last=case.drop_last,
    )


def _wrapped(case: Case, net: nn.Sequential) -> nn.Module:
    if case.wrap == "ddp":
        return DistributedDataParallel(net)
    from torch.distributed.fsdp import fully_shard

    for layer in (net[0], net[2]):
        fully_shard(layer)
    return fully_shard(net)


def _gathered(value: Any, world: int) -> list[Any]:
    everyone = [value]
    if world > 1:
        everyone = [None] * world
        dist.all_gather_object(everyone, value)
    return everyone


def _whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _digest(plan: Any) -> list[int]:
    return [len(plan), zlib.crc32(plan.indices.astype(np.int64)), zlib.crc32(plan.weights.copy())]


def main(arguments: Sequence[str]) -> None:
    """Under torchrun: case, folder, and after how many steps each attempt dies."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    deaths = json.loads(arguments[2]) if len(arguments) > 2 else []
    (Path(arguments[1]) / f"attempt-{attempt}").touch()
    train(Case(**json.loads(arguments[0])), Path(arguments[1]), deaths[attempt] if attempt < len(deaths) else None)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
