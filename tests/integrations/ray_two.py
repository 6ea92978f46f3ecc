"""Starts Ray once, with two workers, by the example: its training, then runs of our own, the last of which fails in
mid-epoch, is restarted by Ray and goes on from Ray's checkpoint. Every worker writes what it has seen to ``<rank>.pt``.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import infobatch
from infobatch import InfoBatch, checkpoint
from infobatch.integrations.ray import prepare_data_loader
from infobatch.lab.data import fashion

SIZE, BATCH, EPOCHS = 90, 4, 4
STEPS = 12  # in a full epoch


def dataset(split: fashion.Split) -> TensorDataset:
    return TensorDataset(torch.from_numpy(split.images).float() / 255, torch.from_numpy(split.labels).long())


def train(
    method: dict[str, Any], fresh: bool = False, stop: tuple[int, int] | None = None, stay: bool = False
) -> dict[str, Any]:
    """Train to the end, from Ray's checkpoint unless ``fresh``; with ``stop=(epoch, batch)`` save there, and fail."""
    data = fashion.load()
    train_data = InfoBatch(dataset(data.train.head(SIZE)), EPOCHS, index_key="index", seed=5, **method)
    cut = {"batch_sampler": train_data.batches(BATCH)} if stay else {"batch_size": BATCH, "sampler": train_data.sampler}
    loader = prepare_data_loader(DataLoader(train_data, **cut))
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cycle = OneCycleLR(optimizer, max_lr=0.1, total_steps=EPOCHS * STEPS + 1)
    schedule = cycle if stay else infobatch.paced(cycle, train_data)
    x_valid, y_valid = dataset(data.test.head(32)).tensors
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "train_data": train_data}
    found: dict[str, Any] = {"seen": [], "plans": [], "rates": [], "losses": {}, "lengths": [], "correct": []}
    if not fresh:
        with ray.train.get_checkpoint().as_directory() as folder:
            state = checkpoint.load(Path(folder, "last.pt"))
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for epoch in range(train_data.epoch, EPOCHS):
        loader.batch_sampler.sampler.set_epoch(epoch)  # nearly as Ray's documentation has it
        found["plans"].append(train_data.plan.indices.tolist())
        found["lengths"].append(len(loader))
        found["seen"].append([])
        found["rates"].append([])
        for number, (x, y, index) in enumerate(loader):
            loss = cross_entropy(model(x), y, reduction="none")
            optimizer.zero_grad()
            train_data.update(loss, index).backward()
            optimizer.step()
            schedule.step()
            found["seen"][-1].append(index.tolist())
            found["rates"][-1].append(schedule.get_last_lr()[0])
            found["losses"].update(zip(index.tolist(), loss.tolist(), strict=True))
            if (epoch, number) == stop:
                report({name: part.state_dict() for name, part in parts.items()})
                raise RuntimeError("this worker fails on purpose")
        found["correct"].append(int((model(x_valid).argmax(1) == y_valid).sum()))
    train_data.set_epoch(EPOCHS)  # the ranks exchange their scores
    weights = [p.detach().clone() for p in model.parameters()]
    return {**found, "weights": weights, "scores": train_data.scores.copy()}


def seed_of_the_plans() -> int:
    """Where workers have seeds of their own."""
    before = torch.get_rng_state()
    torch.manual_seed(7 + ray.train.get_context().get_world_rank())
    train_data = InfoBatch(range(SIZE), EPOCHS, index_key="index")
    prepare_data_loader(DataLoader(train_data, BATCH, sampler=train_data.sampler))
    torch.set_rng_state(before)
    return train_data.sampler.seed


def report(state: dict[str, Any]) -> None:
    """Save, with the figures of the example, which prints those it finds last."""
    figures = ray.train.get_all_reported_checkpoints()[-1].metrics
    with tempfile.TemporaryDirectory() as folder:
        saved = None
        if ray.train.get_context().get_world_rank() == 0:
            checkpoint.save(state, Path(folder, "last.pt"))
            saved = Checkpoint.from_directory(folder)
        ray.train.report(figures, checkpoint=saved)


def refused(loader: DataLoader, **options: Any) -> str:
    try:
        prepare_data_loader(loader, **options)
    except (TypeError, ValueError) as error:
        return str(error)
    return "not refused"


def work(ours: dict[str, Any], config: dict[str, Any]) -> None:
    """The first attempt trains the example, in full, pruned, and pruned until it fails; the second goes on."""
    torch.set_num_threads(1)
    path = Path(ours["folder"], f"{ray.train.get_context().get_world_rank()}.pt")
    if not path.exists():
        ours["example"](config)
        train_data = InfoBatch(range(SIZE), EPOCHS, index_key="index")
        weighted = WeightedRandomSampler([1.0] * SIZE, SIZE)
        found = {
            "full": train({"method": "full"}, fresh=True),
            "pruned": train({"delta": 0.75}, fresh=True),
            "stay": train({"delta": 0.75}, fresh=True, stay=True),
            "seed": seed_of_the_plans(),
            "refused": {
                "other sampler": refused(DataLoader(train_data, sampler=weighted)),
                "position": refused(DataLoader(InfoBatch(range(SIZE), EPOCHS))),
                "other data": refused(DataLoader(range(SIZE))),
                "made outside": refused(DataLoader(ours["outside"])),
            },
        }
        torch.save(found, path)
        train({"delta": 0.75}, fresh=True, stop=(1, 3))
    found = torch.load(path, weights_only=False)
    torch.save({**found, "resumed": train({"delta": 0.75})}, path)


def main(folder: str) -> None:
    import ray_train  # the example; its folder is on the path when this runs as a script

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    outside = InfoBatch(range(SIZE), EPOCHS, index_key="index")
    ray_train.train = partial(work, {"folder": folder, "outside": outside, "example": ray_train.train})
    sys.argv = ["ray_train.py", "--epochs", "3", "--samples", "1000", "--storage", folder]
    ray_train.main()
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
