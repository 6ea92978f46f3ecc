"""Threads for large data; results must not depend on the number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

_LARGE = 1 << 22  # threads are used from this many samples on
_MOST = 8


@contextmanager
def workers(size: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """``map``, or a threaded ``map`` if there are enough samples."""
    threads = min(torch.get_num_threads(), _MOST)
    if size < _LARGE or threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map
