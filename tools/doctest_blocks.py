"""Shows the examples of docstrings as code in the API reference: a griffe extension, named in mkdocs.yml."""

from __future__ import annotations

import re
from typing import Any

import griffe

# From a line that begins with >>> to the next blank line.
EXAMPLE = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", re.S | re.M)


def as_code(docstring: str) -> str:
    r"""The docstring with its examples fenced.

    >>> print(as_code("What it does.\n\n>>> 1 + 1\n2"))
    What it does.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return EXAMPLE.sub(lambda example: f"{example[1]}```pycon\n{example[0]}\n{example[1]}```", docstring)


class DoctestBlocks(griffe.Extension):
    """Rewrites each docstring before it is laid out."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_code(obj.docstring.value)
