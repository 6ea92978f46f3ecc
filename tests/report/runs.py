"""Records that look like those of real runs, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from infobatch.records import SCORE_EDGES, RunRecord

TOTAL, EPOCHS = 10_000, 12
# The share of the data that a method keeps in a pruned epoch, and the change of the metric that it causes.
METHODS = {"full": (1.0, 0.0), "infobatch": (0.66, -0.04), "random": (0.7, -1.1), "infobatch-quantile": (0.55, -0.3)}
COMMAND = "infobatch compare cifar10 --methods full,infobatch --seeds 5"


def run(method: str, seed: int, epochs: int = EPOCHS, **changes: object) -> RunRecord:
    keep, shift = METHODS.get(method, (0.8, -0.5))
    # A seed shifts the metric of all methods alike, which is why runs are compared in pairs.
    luck = np.random.default_rng(seed).normal(0, 0.25)
    rng = np.random.default_rng([seed, sum(method.encode())])
    pruned = [0 < epoch < 0.875 * epochs for epoch in range(epochs)]
    kept = tuple(int(TOTAL * keep + rng.integers(-150, 150)) if p and keep < 1 else TOTAL for p in pruned)
    done = np.arange(1, epochs + 1)
    values = (
        92
        + shift
        + luck
        + rng.normal(0, 0.12)
        - 32 * np.exp(-done / 2.2)
        + rng.normal(0, 0.3, epochs) * (done < epochs)
    )
    losses = 0.12 + 1.9 * np.exp(-done / 2.8) + rng.normal(0, 0.015, epochs)
    logs = [rng.normal(np.log10(loss) - 0.9, 0.5 + 0.05 * e, TOTAL) for e, loss in enumerate(losses)]
    low, high = np.log10(SCORE_EDGES[0]), np.log10(SCORE_EDGES[-1])
    counts = [
        np.histogram(np.clip(10 ** np.clip(log, low, high), SCORE_EDGES[0], SCORE_EDGES[-1]), SCORE_EDGES)[0]
        for log in logs
    ]
    often = [0 if keep == 1 else max(epochs - 4 - i // 3, 0) for i in range(12)]
    fields: dict[str, object] = {
        "metric": "test accuracy, %",
        "higher_is_better": True,
        "total": TOTAL,
        "kept": kept,
        "losses": tuple(losses.tolist()),
        "times": tuple((np.array(kept) * 4e-4 * rng.uniform(0.97, 1.05, epochs)).tolist()),
        "values": tuple(values.tolist()),
        "saving": 1 - sum(kept) / (epochs * TOTAL),
        "overhead": 0.02,
        "noise": tuple(TOTAL / count for count in kept),
        "histograms": tuple(tuple(count.tolist()) for count in counts),
        "hardest": tuple((int(i), float(9 - k / 3)) for k, i in enumerate(rng.permutation(16)[:12])),
        "most_pruned": tuple((100 + i, float(n)) for i, n in enumerate(often)),
        "recipe": {"dataset": "cifar10", "model": "resnet-compact", "epochs": epochs, "lr": 0.3},
        "environment": {"command": COMMAND, "torch": "2.13.0+cpu", "python": "3.11.2", "cpus": 2, "threads": 2},
    }
    return RunRecord(method, seed, **fields | changes)  # type: ignore[arg-type]


def runs(methods: Iterable[str] = METHODS, seeds: Iterable[int] = range(5)) -> list[RunRecord]:
    return [run(method, seed) for seed in seeds for method in methods]
