"""A hash of a key or an id that is the same in every process, on every machine and in every run."""

from __future__ import annotations

from numbers import Integral
from typing import Any
from zlib import crc32


def stable_hash(value: Any, what: str = "key") -> int:
    """A hash of 44 bits of a whole number, a text, bytes, None, or a tuple of these.

    Python's own ``hash`` of texts differs between processes. This one joins two checksums, of the bytes forwards and
    backwards, and takes a quarter of the time of a cryptographic hash; a stream needs it for every sample.

    >>> stable_hash("web") == stable_hash("web"), stable_hash(5) == stable_hash("5"), stable_hash((1, "a")) < 2**44
    (True, False, True)
    """
    text = b"i%d" % value if type(value) is int else _as_bytes(value, what)
    return crc32(text) | (crc32(text[::-1]) & 0xFFF) << 32


def _as_bytes(value: Any, what: str) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode()
    if isinstance(value, Integral):
        return b"i%d" % int(value)  # a Python int too, within a tuple
    if isinstance(value, bytes):
        return b"b" + value
    if value is None:
        return b"n"
    if isinstance(value, tuple):
        parts = [_as_bytes(part, what) for part in value]
        return b"t" + b"".join(b"%d:" % len(part) + part for part in parts)
    raise TypeError(
        f"{what} must be a whole number, text, bytes, None or a tuple of these, got {type(value).__name__} "
        f"{value!r:.80}: return int(...) of a label, or str(...) of anything else"
    )
