"""A name for a key or an id that is the same in every process, on every machine and in every run."""

from __future__ import annotations

from hashlib import blake2b
from numbers import Integral
from typing import Any

from .ticket import NAME_BITS

_MASK = (1 << NAME_BITS) - 1


def stable_hash(value: Any, what: str = "key") -> int:
    """44 bits of a whole number, a text, bytes, None, or a tuple of these.

    Python's own ``hash`` of texts differs between processes.

    >>> stable_hash("web") == stable_hash("web"), stable_hash(5) == stable_hash("5"), stable_hash((1, "a")) < 2**44
    (True, False, True)
    """
    return int.from_bytes(blake2b(_as_bytes(value, what), digest_size=6).digest(), "little") & _MASK


def _as_bytes(value: Any, what: str) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode()
    if isinstance(value, Integral):
        return b"i%d" % int(value)
    if isinstance(value, bytes):
        return b"b" + value
    if value is None:
        return b"n"
    if isinstance(value, tuple):
        parts = [_as_bytes(part, what) for part in value]
        return b"t" + b"".join(b"%d:" % len(part) + part for part in parts)
    raise TypeError(
        f"{what} must return a whole number, text, bytes, None or a tuple of these, got {type(value).__name__} "
        f"{value!r:.80}: return int(...) of a label, or str(...) of anything else"
    )
