"""Checkpoints that can be trusted: written whole or not at all, and refused when a file is damaged.

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
import zipfile
from typing import Any

import torch

from .files import write_whole

_FOLDER = 0x10  # the attribute of a folder, as MS-DOS and zip files have it


def save(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write ``state`` so that ``path`` always holds a whole checkpoint, even if the process or the machine dies.

    If ``path`` is a symbolic link, the file that it points to is written.
    """
    with write_whole(path) as file:
        torch.save(state, file)


def load(path: str | os.PathLike[str], map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint of tensors and plain values; a damaged file raises a ValueError that says so."""
    cause: Exception | None = None
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not check the checksums
            # One changed bit makes a record a folder: the checksum holds, and torch returns memory it never filled.
            folders = any(entry.external_attr & _FOLDER for entry in archive.infolist())
            whole = archive.testzip() is None and not folders
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
        raise ValueError(
            f"{os.fspath(path)} must hold the dict that save() writes, and holds a {type(state).__name__}: save a dict"
        )
    return state
