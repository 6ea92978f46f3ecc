"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_ABANDONED = 3600.0  # seconds without a change after which a half-written file counts as abandoned


@contextlib.contextmanager
def write_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at ``path`` only when all of it is on the disk, and never after an error.

    The content goes to a temporary file beside ``path``, which is forced to disk and then renamed. An older file stays
    until that moment, also when the process or the machine dies. If ``path`` is a symbolic link, the file that it
    points to is written.

    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with write_whole(path) as file:
    ...     _ = file.write(b"all of it")
    >>> path.read_text()
    'all of it'
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if os.name == "posix":
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(file.fileno(), 0o666 & ~mask)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(path.parent)
    _remove_abandoned(path)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text, as UTF-8, whole or not at all."""
    with write_whole(path) as file:
        file.write(text.encode("utf-8"))


def _remove_abandoned(path: Path) -> None:
    """Delete the temporary files of writers of this file that were killed long ago."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED:
                part.unlink()


def _sync_folder(folder: Path) -> None:
    """Force the rename itself to disk, where folders can be opened (not on Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
