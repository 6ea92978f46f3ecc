"""Bytes per sample: resident, while planning, in a checkpoint; and how long a checkpoint takes."""

from __future__ import annotations

import multiprocessing as mp
import os
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

from infobatch import checkpoint

from .plan import scored

SCORE_BYTES = 4  # the table is torch's, which tracemalloc does not see


def planning(size: int, method: str) -> tuple[float, float]:
    """(held between plans, peak while planning) bytes per sample, as numpy and Python allocate them."""
    train_data = scored(size, method)
    train_data.set_epoch(1)
    tracemalloc.start()
    for epoch in (2, 3):
        tracemalloc.reset_peak()
        train_data.set_epoch(epoch)
    now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return now / size + SCORE_BYTES, most / size + SCORE_BYTES


def state(size: int) -> tuple[float, float, float]:
    """(megabytes of a checkpoint, milliseconds to take the state, milliseconds to write it), medians of 9."""
    train_data = scored(size, "infobatch")
    train_data.set_epoch(1)
    taken, written = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        for _ in range(9):
            start = time.perf_counter()
            found = train_data.state_dict()
            middle = time.perf_counter()
            checkpoint.save(found, path)
            taken.append(middle - start)
            written.append(time.perf_counter() - middle)
        megabytes = os.path.getsize(path) / 1e6
    return megabytes, statistics.median(taken) * 1e3, statistics.median(written) * 1e3


def peak_bytes() -> int:
    """The most that this process has held; ``getrusage`` would count the parent's memory before ``exec``."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def run(size: int) -> dict[str, float]:
    """Everything of this page, each in a process of its own."""
    with mp.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        found = {}
        for method in ("infobatch", "infobatch-quantile"):
            now, most = pool.apply(planning, (size, method))
            found[f"{method}: resident bytes per sample (bar 8)"] = now
            found[f"{method}: peak bytes per sample while planning (bar 16)"] = most
        megabytes, taken, written = pool.apply(state, (1_281_167,))
    found["checkpoint of 1,281,167 samples, MB (bar 12)"] = megabytes
    found["state_dict(), ms"] = taken
    found["checkpoint.save(), ms (bar 50)"] = written
    return found
