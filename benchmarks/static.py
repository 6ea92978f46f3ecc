"""Static selection at scale: ``python -m benchmarks.static`` times each greedy method in a process of its own.

The bar for 50,000 samples of 512 features is 60 s on two cores and 2 GB, all of the process included.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from infobatch import static

from .memory import peak_bytes

Array = NDArray[np.float32]

METHODS: dict[str, Callable[[Array, int], object]] = {
    "k-center": static.k_center,
    "herding": static.herding,
    "craig": static.craig,
    "graph-cut": static.graph_cut,
    "dq": static.dq,
}


def clustered(size: int, dimensions: int) -> Array:
    """Like a network's features: not negative, in a hundred clusters."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((size, dimensions), np.float32)
    rows += 2 * rng.standard_normal((100, dimensions), np.float32)[rng.integers(100, size=size)]
    return np.maximum(rows, 0, out=rows)


def normal(size: int, dimensions: int) -> Array:
    """Without any structure."""
    return np.random.default_rng(0).standard_normal((size, dimensions), np.float32)


def measure(method: str, data: Callable[[int, int], Array], size: int, dimensions: int, count: int) -> dict[str, float]:
    """Seconds, those of all cores together, and the most megabytes that the process ever held."""
    rows = data(size, dimensions)
    wall, cores = time.perf_counter(), time.process_time()
    METHODS[method](rows, count)
    return {
        "seconds": time.perf_counter() - wall,
        "core seconds": time.process_time() - cores,
        "MB": peak_bytes() / 1e6,
    }


def alone(*arguments: object) -> dict[str, float]:
    """``measure`` in a fresh process, so that nobody else's memory counts."""
    with mp.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.apply(measure, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.static", description=__doc__)
    parser.add_argument("--size", type=int, default=50_000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.1, 0.5])
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=METHODS)
    options = parser.parse_args()
    print(f"{options.size:,} x {options.dimensions}, {torch.get_num_threads()} threads, {os.cpu_count()} cores")
    print(f"{'method':10} {'features':10} {'count':>7} {'s':>7} {'core s':>7} {'MB':>6}")
    for method in options.methods:
        for data in (clustered, normal):
            for fraction in options.fractions:
                count = round(fraction * options.size)
                found = alone(method, data, options.size, options.dimensions, count)
                figures = f"{found['seconds']:7.1f} {found['core seconds']:7.1f} {found['MB']:6.0f}"
                print(f"{method:10} {data.__name__:10} {count:7,} {figures}", flush=True)


if __name__ == "__main__":
    main()
