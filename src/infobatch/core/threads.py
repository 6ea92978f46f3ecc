"""Threads where there is work enough for them; what they do must not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

_LARGE = 1 << 22  # from so many samples on
_MOST = 8


@contextmanager
def workers(size: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """``map``, or a threaded one where ``size`` samples are worth it."""
    threads = min(torch.get_num_threads(), _MOST)
    if size < _LARGE or threads == 1:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map
