"""Put a sample's index, or a stream's ticket, into it, where collate functions, workers and device moves carry it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_index(sample: Any, index: int, key: str, argument: str = "index_key") -> Any:
    """``sample`` with its index: under ``key`` in a mapping, as a last element of a tuple or list.

    Anything else becomes the pair (sample, index). The given sample is left as it is. ``argument`` is where the key was
    named, for errors.

    >>> with_index({"x": 3}, 7, "index"), with_index((3, 4), 7, "index"), with_index(3, 7, "index")
    ({'x': 3, 'index': 7}, (3, 4, 7), (3, 7))
    """
    if type(sample) is tuple:  # asked first: most samples are, and a stream asks for every one
        return (*sample, index)
    if type(sample) is dict or isinstance(sample, Mapping):
        if key in sample:
            raise ValueError(f"{argument}={key!r} is already a key of the samples: choose another name")
        return {**sample, key: index}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        raise TypeError(
            f"{argument}={key!r} cannot be added to samples of the named tuple {type(sample).__name__}: "
            "return a dict or a plain tuple from the dataset"
            + (", or leave index_key out (the position is enough)" if argument == "index_key" else "")
        )
    if isinstance(sample, tuple | list):
        return type(sample)([*sample, index])
    return sample, index
