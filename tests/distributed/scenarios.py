"""What ranks do in the tests of the exchange and of torch's own checkpoints; what they saw goes to a file each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

from infobatch import InfoBatch, methods
from infobatch.distributed.ranks import Ranks


def note(folder: Path, what: Any) -> None:
    """Keep ``what`` for the test."""
    torch.save(what, folder / f"rank-{Ranks().here()[0]}.pt")


def notes(folder: Path, world: int) -> list[Any]:
    """What every rank has noted."""
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(world)]


def numbers(size: int) -> TensorDataset:
    """Sample i is (i,)."""
    return TensorDataset(torch.arange(float(size)))


def message_of(work: Callable[[], Any]) -> str:
    """The error ``work`` ends with."""
    try:
        work()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


# -- every method --------------------------------------------------------------------------------------------------


def every_method(folder: Path) -> None:
    """Train with each method in turn; losses depend on sample and epoch alone. All plans are noted."""
    found = {}
    for name in methods.list():
        options = (
            {"noise": 1.0} if name == "infobatch-adaptive" else {}
        )  # these losses are chance: 0.1 would save nothing
        train_data = InfoBatch(numbers(31), 6, method=name, seed=2, **options)
        batch = 12 // train_data.sampler.num_replicas  # what all ranks take in a step decides how a plan is cut
        loader = DataLoader(train_data, batch_size=batch, sampler=train_data.sampler)
        plans = []
        for epoch in range(6):
            train_data.set_epoch(epoch)
            plan = train_data.plan
            plans.append([plan.indices.tolist(), plan.weights.tolist()])
            for (samples,) in loader:
                loss = torch.sin(samples * 7 + epoch).abs()
                chosen = train_data.choose(loss, gradients=torch.stack([loss, loss**2], 1))
                train_data.update(loss[chosen])
            if train_data.method.refreshes:
                left_out = torch.from_numpy(train_data.left_out)
                if len(left_out):
                    train_data.note(torch.sin(left_out * 7.0 + epoch).abs(), left_out)
        train_data.set_epoch(6)
        kept = [[e.kept, e.seen] for e in train_data.stats.epochs]
        found[name] = {"plans": plans, "scores": train_data.scores.tolist(), "kept": kept}
    note(folder, found)


# -- ranks that disagree -------------------------------------------------------------------------------------------


def disagree(folder: Path) -> None:
    """Rank 1 is made differently, in one way after the other."""
    rank = dist.get_rank()
    size, usual = 20, {"num_epochs": 4, "seed": 0}
    ways: dict[str, tuple[int, dict[str, Any]]] = {
        "size": (size + rank, {}),
        "seed": (size, {"seed": rank}),
        "ratio": (size, {"ratio": 0.5 + 0.1 * rank}),
        "method": (size, {"method": ["infobatch", "random"][rank]}),
        "momentum": (size, {"momentum": 1 - 0.5 * rank}),
        "num_epochs": (size, {"num_epochs": 4 + rank}),
        "strata": (size, {"strata": np.arange(size) % (2 + rank)}),
        "nothing": (size, {}),
    }
    note(
        folder,
        {
            name: message_of(lambda n=n, o=options: InfoBatch(numbers(n), **{**usual, **o}))  # type: ignore[misc]
            for name, (n, options) in ways.items()
        },
    )


def different_plans(folder: Path) -> None:
    """Rank 1 has shuffled the epoch in its own way: scores must not be exchanged."""
    rank = dist.get_rank()
    train_data = InfoBatch(numbers(20), 3, order=[np.arange(20), np.arange(20)[::-1]][rank])
    for (x,) in DataLoader(train_data, batch_size=5, sampler=train_data.sampler):
        train_data.update(x)
    note(folder, message_of(lambda: train_data.set_epoch(1)))


def different_places(folder: Path) -> None:
    """The ranks were given states of different steps of the same epoch."""
    rank = dist.get_rank()
    train_data = InfoBatch(numbers(24), 3)
    states = []
    for (x,) in DataLoader(train_data, batch_size=3, sampler=train_data.sampler):
        train_data.update(x)
        states.append(train_data.state_dict())
    resumed = InfoBatch(numbers(24), 3)

    def go_on() -> None:
        resumed.load_state_dict(states[rank])
        for (x,) in DataLoader(resumed, batch_size=3, sampler=resumed.sampler):
            resumed.update(x)
        resumed.set_epoch(1)

    note(folder, message_of(go_on))


# -- scores that travel --------------------------------------------------------------------------------------------


class Far(Dataset):
    """2²⁵ + 3 samples, none of which takes any room."""

    def __len__(self) -> int:
        return 2**25 + 3

    def __getitem__(self, i: int) -> int:
        return i


def far_indices(folder: Path, index_key: str | None) -> None:
    """bf16 losses of samples whose indices no float32 can tell apart; of their scores every rank must have all."""
    order = np.arange(2**25 + 3 - 61, 2**25 + 3)[::-1].copy()
    train_data = InfoBatch(Far(), 3, order=order, index_key=index_key)
    for batch in DataLoader(train_data, batch_size=4, sampler=train_data.sampler):
        index = batch[0] if index_key else batch
        loss = (index % 128).to(torch.bfloat16)  # exact in bf16
        train_data.update(loss, index if index_key else None)
    train_data.set_epoch(1)
    scores = train_data.scores
    scored = np.flatnonzero(~np.isnan(scores))
    note(
        folder,
        {
            "scored": scored.tolist() == sorted(order.tolist()),
            "right": bool((scores[scored] == scored % 128).all()),
            "plan": train_data.plan.indices.tolist(),
        },
    )


def not_finite(folder: Path) -> None:
    """Losses that are not finite are counted once, whichever rank had them."""
    train_data = InfoBatch(numbers(11), 3)
    for (x,) in DataLoader(train_data, batch_size=2, sampler=train_data.sampler):
        train_data.update(torch.where(x == train_data.plan.indices[0], torch.nan, x))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        train_data.set_epoch(1)
    note(folder, {"rejected": train_data.stats.rejected, "unknown": int(np.isnan(train_data.scores).sum())})


def default_back_end(folder: Path) -> None:
    """``init_process_group()`` without a back end, as many scripts have it."""
    dist.destroy_process_group()
    dist.init_process_group(init_method=f"file://{folder}/again", rank=int(dist_rank(folder)), world_size=2)
    train_data = InfoBatch(numbers(11), 2)
    for (x,) in DataLoader(train_data, batch_size=2, sampler=train_data.sampler):
        train_data.update(x)
    train_data.set_epoch(1)
    note(folder, {"scores": train_data.scores.tolist(), "done": train_data.state_dict()["done"]})


def dist_rank(folder: Path) -> int:
    """A rank by who comes first."""
    try:
        (folder / "first").mkdir()
    except FileExistsError:
        return 1
    return 0


# -- torch.distributed.checkpoint ----------------------------------------------------------------------------------


def _parts(options: dict[str, Any]) -> tuple[InfoBatch, nn.Module, Any]:
    torch.manual_seed(2)
    train_data = InfoBatch(numbers(37), 4, **options)
    model: nn.Module = nn.Linear(1, 1).double()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    return train_data, model, torch.optim.SGD(model.parameters(), lr=1e-4)


def _steps(train_data: InfoBatch, model: nn.Module, optimizer: Any) -> Iterator[int]:
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    for epoch in range(train_data.epoch, 4):
        train_data.set_epoch(epoch)
        for (x,) in loader:
            train_data.update((model(x[:, None].double()) - 1).square().mean(1)).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield epoch


def _bare(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def dcp_save(folder: Path, options: dict[str, Any]) -> None:
    """Save model and train_data together in the middle of the pruned epoch 1; note how it ends."""
    train_data, model, optimizer = _parts(options)
    here = 0
    for epoch in _steps(train_data, model, optimizer):
        here += epoch == 1
        if epoch == 1 and here == 2:
            dcp.save(
                {"model": _bare(model).state_dict(), "train_data": train_data}, checkpoint_id=folder / "checkpoint"
            )
    note(folder, _end(train_data, model))


def dcp_load(folder: Path, options: dict[str, Any]) -> None:
    """Go on from there in new objects."""
    train_data, model, optimizer = _parts(options)
    state = {"model": _bare(model).state_dict(), "train_data": train_data}
    dcp.load(state, checkpoint_id=folder / "checkpoint")
    _bare(model).load_state_dict(state["model"])
    for _ in _steps(train_data, model, optimizer):
        pass
    note(folder, _end(train_data, model))


def _end(train_data: InfoBatch, model: nn.Module) -> dict[str, Any]:
    state = train_data.state_dict()
    return {
        "weights": [p.detach() for p in model.parameters()],
        "scores": state["scores"],
        "plan": state["plan"],
        "history": state["history"],
    }


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](Path(sys.argv[2]), **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}"))
    dist.destroy_process_group()
