"""Checkpoints that can be trusted: written whole or not at all, read back whole or refused.

>>> import tempfile, pathlib, torch
>>> from infobatch import checkpoint
>>> path = pathlib.Path(tempfile.mkdtemp()) / "last.pt"
>>> checkpoint.save({"step": 3, "weights": torch.ones(2)}, path)
>>> checkpoint.load(path)["step"]
3
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import torch

_ABANDONED = 3600.0  # seconds after which a half-written file has no writer any more


def save(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write ``state`` so that ``path`` always holds a whole checkpoint, whenever the process or the machine dies.

    The file is written beside its place, forced to disk, then renamed; a file that was there stays until that moment.
    Where ``path`` is a symbolic link, the file it points to is written.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(state, file)
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


def load(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint of tensors and plain values; a damaged file raises ValueError and says so."""
    cause: Exception | None = None
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums
            whole = archive.testzip() is None
        if whole:
            state = torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{os.fspath(path)} is not a checkpoint of tensors and plain values, or it is damaged; nothing was used. "
            f"torch says: {str(error).splitlines()[0]}"
        ) from error
    except (FileNotFoundError, PermissionError, IsADirectoryError, MemoryError):
        raise
    except Exception as error:  # damaged files make the readers fail in many ways
        whole, cause = False, error
    if not whole:
        raise ValueError(
            f"{os.fspath(path)} is cut short or damaged ({os.path.getsize(path):,} bytes) and nothing of it was used: "
            "take an earlier checkpoint, and write with infobatch.checkpoint.save, which never leaves half a file"
        ) from cause
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} holds a {type(state).__name__}, not the dict that save() writes")
    return state


def _remove_abandoned(path: Path) -> None:
    """Delete what writers of this checkpoint that were killed long ago have left."""
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
