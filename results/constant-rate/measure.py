"""A learning rate that stays high to the end: what the noise budget loses there, and what full last epochs bring back.

    python results/constant-rate/measure.py --records results/constant-rate/records.jsonl

A plain network without batch norm on 3,000 pictures that come with the package. The file gets a line per run, and runs
that are in it are not repeated. The table is printed at the end: differences to full data, paired by seed, with their
standard errors.
"""

import argparse
import json
import statistics
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.lab.data import fashion

SAMPLES, EPOCHS, BATCH, SEEDS = 3000, 8, 50, 10
BUDGET = {"method": "infobatch-adaptive"}
METHODS = {
    "full": {"method": "full"},
    "infobatch": {"method": "infobatch"},
    "budget": BUDGET,
    "budget, last fifth full": {**BUDGET, "anneal": True, "delta": 0.8},
}
SETTINGS = [(rate, decay) for rate in (0.05, 0.01) for decay in (False, True)]


def main() -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, required=True)
    path = parser.parse_args().records
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    pictures = fashion.load()
    train_set, test_set = (TensorDataset(*as_tensors(s)) for s in (pictures.train.head(SAMPLES), pictures.test))
    with path.open("a") as file:
        for seed in range(SEEDS):
            for rate, decay in SETTINGS:
                for name in METHODS:
                    run = {"rate": rate, "decay": decay, "method": name, "seed": seed}
                    if any(run.items() <= record.items() for record in done):
                        continue
                    done.append({**run, **train(train_set, test_set, rate, decay, name, seed)})
                    file.write(json.dumps(done[-1]) + "\n")
                    file.flush()
    tell(done)


def as_tensors(split: fashion.Split) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised images and their labels."""
    images = (torch.from_numpy(split.images).float() / 255 - fashion.MEAN) / fashion.STD
    return images, torch.from_numpy(split.labels).long()


def train(
    train_set: TensorDataset, test_set: TensorDataset, rate: float, decay: bool, method: str, seed: int
) -> dict[str, float]:
    """One run: its test accuracy, the share of samples saved, and the noise factor."""
    train_data = infobatch.InfoBatch(train_set, EPOCHS, seed=seed, **METHODS[method])
    loader = DataLoader(train_data, batch_sampler=train_data.batches(BATCH))
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    scheduler = CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for x, y in loader:
            loss = train_data.update(cross_entropy(model(x), y, reduction="none"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if decay:
            scheduler.step()
    x, y = test_set.tensors
    with torch.no_grad():
        accuracy = 100 * (model(x).argmax(1) == y).float().mean().item()
    saved = train_data.stats.saved / (SAMPLES * EPOCHS)
    return {"accuracy": round(accuracy, 2), "saved": round(saved, 4), "noise": round(train_data.stats.noise, 3)}


def tell(records: list[dict[str, float]]) -> None:
    """Print the differences to full data."""
    for rate, decay in SETTINGS:
        runs = {
            name: {r["seed"]: r for r in records if (r["rate"], r["decay"], r["method"]) == (rate, decay, name)}
            for name in METHODS
        }
        mean = statistics.mean(r["accuracy"] for r in runs["full"].values())
        print(f"learning rate {rate}, {'falling to 0' if decay else 'constant'}: full data {mean:.2f}")
        for name in list(METHODS)[1:]:
            differences = [r["accuracy"] - runs["full"][seed]["accuracy"] for seed, r in runs[name].items()]
            error = statistics.stdev(differences) / len(differences) ** 0.5
            saved = statistics.mean(r["saved"] for r in runs[name].values())
            print(f"  {name:<24} {statistics.mean(differences):+.2f} ± {error:.2f}   saved {saved:.0%}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RuntimeWarning)  # the noise of single epochs, which is the subject here
    main()
