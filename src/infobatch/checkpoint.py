"""Checkpoints that can be trusted: written whole or not at all, read back whole or refused.

>>> import tempfile, pathlib, torch
>>> from infobatch import checkpoint
>>> path = pathlib.Path(tempfile.mkdtemp()) / "last.pt"
>>> checkpoint.save({"step": 3, "weights": torch.ones(2)}, path)
>>> checkpoint.load(path)["step"]
3
"""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch


def save(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write ``state`` so that ``path`` always holds a whole checkpoint, whenever the process or the machine dies.

    The file is written beside its place, forced to disk, then renamed; a file that was there stays until that moment.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def load(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint of tensors and plain values; a damaged file raises ValueError and says so."""
    try:
        state = torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{os.fspath(path)} is not a checkpoint of tensors and plain values, or it is damaged; nothing of it was "
            f"used. torch says: {str(error).splitlines()[0]}"
        ) from error
    except (EOFError, RuntimeError) as error:
        size = os.path.getsize(path)
        raise ValueError(
            f"{os.fspath(path)} is cut short or damaged ({size:,} bytes) and nothing of it was used: "
            "take an earlier checkpoint, and write with infobatch.checkpoint.save, which never leaves half a file"
        ) from error
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} holds a {type(state).__name__}, not the dict that save() writes")
    return state


def _sync_folder(folder: Path) -> None:
    """Force the rename itself to disk, where folders can be opened (not on Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
