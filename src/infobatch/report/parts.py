"""The parts of a page that lie beside this file: frames, styles and scripts."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources


def read_part(*names: str) -> str:
    """The text of these files, one after the other."""
    files = resources.files(__package__)
    return "\n".join(files.joinpath(name).read_text(encoding="utf-8") for name in names)


def digest(text: str) -> str:
    """The hash by which the browser knows the page's own style and script; it runs no others."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
