"""What can be left out of a stream at a noise of 0.1, by what is known of its samples: no training on the outcome.

    python results/streams/savings.py DATA OUT --task text --seed 0

A model is trained on the whole stream once (``full`` of compare.py). After a quarter, a half and all of its steps, the
losses of the next 4,000 samples (16,000 images) are taken. One half of them teaches what a key, a bin of the look's
score or of the loss a quarter of training ago (an id's) is worth; on the other half, the share that is left out and the
noise factor that this really has are counted. ``forward`` knows the loss itself. The squared gradient norm is taken as
the loss. With 4,000 images, as in a first try on one seed, most classes had fewer than 16 losses and were kept whole.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compare import TASKS, Task
from numpy.typing import NDArray

from infobatch.core.budget import noise_factor, within_noise
from infobatch.stream.bins import bin_of

NOISE, FLOOR, LEAST = 0.1, 0.1, 16
SAMPLES = {"text": 4_000, "images": 16_000}  # enough for 16 losses of each key


def losses_of(task: Task, model: torch.nn.Module, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of these samples."""
    model.eval()
    with torch.no_grad():
        parts = [task.losses(model, task.x[part], task.y[part]) for part in torch.from_numpy(rows).split(200)]
    model.train()
    return torch.cat(parts).double().numpy()


def left_out(group: NDArray[Any], size: NDArray[np.float64]) -> tuple[float, float]:
    """The share left out and the noise factor on one half, by what the other half teaches of the groups."""
    _, group = np.unique(group, return_inverse=True)
    learn = np.arange(len(size)) % 2 == 0
    count = np.bincount(group[learn], minlength=group.max() + 1)
    mean = np.bincount(group[learn], size[learn], group.max() + 1) / np.maximum(count, 1)
    keep = np.ones(len(count))
    known = count >= LEAST
    keep[known] = within_noise(mean[known], count[known], NOISE, FLOOR)
    each = keep[group[~learn]]
    return float(1 - each.mean()), noise_factor(size[~learn], np.ones(len(each)), each)


def measure(task: Task, samples: int, seed: int) -> list[dict[str, Any]]:
    """One training, looked at three times."""
    torch.manual_seed(seed)
    order = np.random.default_rng(seed).permutation(len(task.x))
    stream, probe = order[:-samples], order[-samples:]
    looks = np.array([task.look(task.x[i]) for i in probe])
    keys = np.array([task.key[i] for i in probe])
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), task.rate, weight_decay=0.01)
    steps = min(task.samples, len(stream)) // task.batch
    records, before = [], losses_of(task, model, probe)
    for quarter in range(4):
        for step in range(quarter * steps // 4, (quarter + 1) * steps // 4):
            rows = torch.from_numpy(stream[step * task.batch : (step + 1) * task.batch])
            loss = task.losses(model, task.x[rows], task.y[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        now = losses_of(task, model, probe)
        if quarter in (0, 1, 3):
            exact = within_noise(now, np.ones(len(now)), NOISE, FLOOR)
            ways = {
                "key": left_out(keys, now),
                "look": left_out(bin_of(looks), now),
                "id": left_out(bin_of(before), now),
                "forward": (float(1 - exact.mean()), noise_factor(now, np.ones(len(now)), exact)),
            }
            records.append({"seed": seed, "steps done": (quarter + 1) / 4, "loss": float(now.mean()), "ways": ways})
        before = now
    return records


def main() -> None:
    """One task and seed; a line of JSON for each look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--task", choices=list(TASKS), required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = TASKS[options.task].read(options.data)
    with options.out.open("a") as out:
        for record in measure(task, SAMPLES[options.task], options.seed):
            out.write(json.dumps({"task": options.task, **record}) + "\n")


if __name__ == "__main__":
    main()
