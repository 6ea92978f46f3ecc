"""``python -m benchmarks``: prints a table of ratios and writes them as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from . import memory, plan, ranks, scale, step, streams
from .timing import growth

STEP_ROUNDS = 25  # ratios near 1 need more rounds than ratios far from it


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=[50_000, 1_281_167, 14_197_122, 100_000_000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"))
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes]
    often = max(options.rounds, STEP_ROUNDS)
    results = step.run(often) + streams.run(often) + ranks.run(often) + plan.run(sizes, options.rounds)
    figures = {**ranks.exchanges(), **memory.run(14_197_122)}
    plans = {size: next(r for r in results if r.name == f"plan, N={size:,}").seconds["ours"] for size in sizes}
    figures["exponent of plan time in N, from 1.28M on (bar 1.1)"] = growth(
        {size: seconds for size, seconds in plans.items() if size >= 1_000_000}
    )
    figures["90 epochs at 1.28M, all outside the step, s (bar 3)"] = plan.whole_training(1_281_167, 90)
    figures |= step.speed_ups(options.rounds)
    costs = plan.every_method(1_281_167, options.rounds)
    figures |= {f"end of epoch and next plan at 1.28M, {name}, ns a sample": cost for name, cost in costs.items()}
    figures |= streams.let_through(options.rounds)
    figures |= scale.run()
    width = max(len(result.name) for result in results)
    print(f"{'':{width}} {'ours':>10} {'against':>10} {'ratio':>6} {'bar':>5}")
    for result in results:
        ours, theirs, *_ = (f"{seconds * 1e3:.3f} ms" for seconds in result.seconds.values())
        bar = "" if result.bar is None else f"{result.bar:.2f}"
        print(f"{result.name:{width}} {ours:>10} {theirs:>10} {result.ratio:6.2f} {bar:>5} {result.verdict}")
    for name, figure in figures.items():
        print(f"{name}: {figure:.4g}")
    environment = {
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    rows = [{**asdict(result), "ratio": result.ratio, "verdict": result.verdict} for result in results]
    options.json.write_text(
        json.dumps({"environment": environment, "results": rows, "figures": figures}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
