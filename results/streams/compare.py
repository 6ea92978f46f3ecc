"""One pass over mixed streams: uniform thinning against key, look, forward, and id in a second pass, at equal steps.

    python results/streams/compare.py DATA OUT [--seeds 0 1 ...] [--tasks text images] [--arms ...]

DATA holds alpaca/alpaca.jsonl.gz, sst2/train.tsv.gz and dev.tsv.gz, banking77/train.csv and test.csv, cifar100.npz and
fashion-mnist.npz (train_x, train_y, test_x, test_y). OUT is a file of records, one line of JSON a run; runs in it are
not made again. Everything below was fixed before the first run was looked at, on one thread.

Every arm makes as many steps as 0.6 of the stream's N samples fill (``full``: N; ``forward``: N, each over the chosen
part of its batch). All have the same learning rate, by cosine over their own steps, and ``scale="steps"``. What counts
is the mean loss on held-out data of the same mix.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from infobatch import Stream

SAVING = 0.4  # left out, in every arm but full
FORWARD = 1 / 3  # of a step is its forward pass
ARMS = ("full", "uniform", "key", "look", "forward", "forward-equal-time", "two-passes", "id")
LENGTH = 64  # bytes of a text


class Task:
    """A pool of samples, of which a seed makes a stream; held-out samples; a model and its losses per sample."""

    samples: int  # N
    batch: int
    rate = 3e-3

    def __init__(self, x: torch.Tensor, y: torch.Tensor, key: list[Any], test: tuple[torch.Tensor, torch.Tensor]):
        self.x, self.y, self.key, self.test = x, y, key, test

    def model(self) -> nn.Module:
        """A fresh one."""
        raise NotImplementedError

    def losses(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One per sample."""
        raise NotImplementedError

    def look(self, x: torch.Tensor) -> float:
        """A score that costs next to nothing."""
        raise NotImplementedError


class LanguageModel(nn.Module):
    """The next byte from the six before it: an embedding of each, and one hidden layer."""

    reach = 6

    def __init__(self, width: int = 16, hidden: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.hidden = nn.Linear(self.reach * width, hidden)
        self.head = nn.Linear(hidden, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of the byte after each."""
        before = functional.pad(x, (self.reach - 1, 0)).unfold(1, self.reach, 1)
        return self.head(functional.relu(self.hidden(self.embed(before).flatten(2))))


class Text(Task):
    """Alpaca, SST-2 and Banking77, by source."""

    samples, batch = 12_000, 32

    @classmethod
    def read(cls, data: Path) -> Text:
        with gzip.open(data / "alpaca/alpaca.jsonl.gz", "rt") as lines:
            alpaca = [" ".join(json.loads(line).get(k) or "" for k in ("instruction", "output")) for line in lines]
        sst2 = {}
        for split in ("train", "dev"):
            with gzip.open(data / f"sst2/{split}.tsv.gz", "rt") as lines:
                sst2[split] = [line.rpartition("\t")[0] for line in lines]
        banking = {}
        for split in ("train", "test"):
            with open(data / f"banking77/{split}.csv", newline="") as lines:
                banking[split] = [row["text"] for row in csv.DictReader(lines)]
        train = {"alpaca": alpaca[:13_000], "sst2": sst2["train"][:10_200], "banking": banking["train"][:8_000]}
        test = alpaca[-700:] + sst2["dev"][:550] + banking["test"][:430]  # the same mix
        texts = [text for part in train.values() for text in part]
        key = [name for name, part in train.items() for _ in part]
        x = encoded(texts)
        held_out = encoded(test)
        return cls(x, x, key, (held_out, held_out))

    def model(self) -> nn.Module:
        return LanguageModel()

    def losses(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits, target = model(x)[:, :-1], x[:, 1:]
        each = functional.cross_entropy(logits.transpose(1, 2), target, reduction="none")
        real = (target > 0).float()
        return (each * real).sum(1) / real.sum(1).clamp(min=1)

    def look(self, x: torch.Tensor) -> float:
        text = bytes(x.tolist()).rstrip(b"\0")
        return len(zlib.compress(text, 1)) / max(len(text), 1)


def encoded(texts: list[str]) -> torch.Tensor:
    """The first bytes of each text, filled up with 0."""
    rows = [text.encode()[:LENGTH].ljust(LENGTH, b"\0") for text in texts]
    return torch.from_numpy(np.frombuffer(b"".join(rows), np.uint8).reshape(-1, LENGTH).astype(np.int64))


class Images(Task):
    """CIFAR-100 and Fashion-MNIST at 16 x 16 as one problem of 110 classes, by label."""

    samples, batch = 30_000, 64

    @classmethod
    def read(cls, data: Path) -> Images:
        parts: dict[str, list[Any]] = {"train": [], "test": []}
        for name, first, most in (("cifar100", 0, 26_000), ("fashion-mnist", 100, 26_000)):
            arrays = np.load(data / f"{name}.npz")
            for split, some in (("train", most), ("test", 2_000)):
                x = torch.from_numpy(arrays[f"{split}_x"][:some]).permute(0, 3, 1, 2).float() / 255
                x = functional.interpolate(x.expand(-1, 3, -1, -1), (32, 32)) if x.shape[1] == 1 else x
                parts[split].append((functional.avg_pool2d(x, 2) - 0.5, arrays[f"{split}_y"][:some] + first))
        (x, y), test = (
            (torch.cat([a for a, _ in part]), np.concatenate([b for _, b in part])) for part in parts.values()
        )
        return cls(x, torch.from_numpy(y), y.tolist(), (test[0], torch.from_numpy(test[1])))

    def model(self) -> nn.Module:
        convolutions = nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()
        return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(512, 110))

    def losses(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x), y, reduction="none")

    def look(self, x: torch.Tensor) -> float:
        return float((x[:, :, 1:] - x[:, :, :-1]).abs().mean())


TASKS: dict[str, type[Any]] = {"text": Text, "images": Images}


def train(task: Task, arm: str, seed: int) -> dict[str, Any]:
    """One run."""
    torch.manual_seed(seed)
    order = np.random.default_rng(seed).permutation(len(task.x))
    passes = 2 if arm in ("two-passes", "id") else 1
    half = task.samples // 2

    def read() -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        for i in order[:half] if passes == 2 else order:
            yield task.x[i], task.y[i], int(i)

    options: dict[str, Any] = {"seed": seed, "scale": "steps", "saving": SAVING}
    ask: dict[str, dict[str, Callable[[Any], Any]]] = {
        "key": {"key": lambda sample: task.key[sample[2]]},
        "id": {"id": lambda sample: sample[2]},
        "look": {"look": lambda samples: [task.look(sample[0]) for sample in samples]},
    }
    if arm == "forward-equal-time":
        options["saving"] = SAVING + FORWARD
    stream = Stream(read, **options, **ask.get(arm, {}))
    per_pass = [half / task.batch, half * (1 - SAVING) / task.batch]
    steps = [int(per_pass[0]), int(per_pass[1])] if passes == 2 else [int((1 - SAVING) * task.samples / task.batch)]
    if arm == "full" or arm.startswith("forward"):
        steps = [task.samples // task.batch]
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), task.rate, weight_decay=0.01)
    warm = 0.05 * sum(steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warm, 0.5 + 0.5 * np.cos(np.pi * min(s / sum(steps), 1)))
    )
    chance = np.random.default_rng([seed, 1])
    trained, began = 0, time.process_time()
    for passed, number in enumerate(steps):
        source: Any = stream
        if arm in ("uniform", "two-passes") and (passes == 1 or passed):
            thinned = (sample for sample in stream if chance.random() >= SAVING)
            source = list(itertools.islice(thinned, number * task.batch))
        for step, (x, y, _, ticket) in enumerate(DataLoader(source, batch_size=task.batch)):
            if step == number:
                break
            if arm.startswith("forward"):
                with torch.no_grad():
                    chosen = stream.choose(task.losses(model, x, y))
                x, y, ticket = x[chosen.positions], y[chosen.positions], chosen
            loss = stream.update(task.losses(model, x, y), ticket)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            trained += len(x)
    seconds = time.process_time() - began
    model.eval()
    with torch.no_grad():
        x, y = task.test
        held_out = torch.cat([task.losses(model, a, b) for a, b in zip(x.split(200), y.split(200), strict=True)])
    stats = stream.stats
    return {
        "arm": arm,
        "seed": seed,
        "loss": float(held_out.mean()),
        "trained": trained,
        "stands for": stats.stands_for,
        "noise": stats.noise,
        "cpu seconds": seconds,
        "steps": sum(steps),
        "keys": {key.name: [key.trained, round(key.stands_for), round(key.keep, 3)] for key in stats.keys[:12]},
    }


def main() -> None:
    """All runs that are not in OUT yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks = {name: TASKS[name].read(options.data) for name in options.tasks}
    done = set()
    if options.out.exists():
        records = [json.loads(line) for line in options.out.read_text().splitlines()]
        done = {(record["task"], record["arm"], record["seed"]) for record in records}
    for seed in options.seeds:
        for name, task in tasks.items():
            for arm in options.arms:
                if (name, arm, seed) not in done:
                    record = {"task": name, **train(task, arm, seed)}
                    with options.out.open("a") as out:
                        out.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
