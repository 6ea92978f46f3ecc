"""A training function of the user's own: where it is, so that another process can find it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .trial import Trial


@dataclass(frozen=True)
class OwnFunction:
    """Where a function is: in a file, or in a module that can be imported."""

    name: str
    file: Path | None = None
    module: str | None = None

    @classmethod
    def parse(cls, text: str) -> OwnFunction:
        """Read ``my_train.py:train`` or ``package.module:train``."""
        where, colon, name = text.rpartition(":")
        if not colon or not name.isidentifier():
            raise ValueError(f"{text!r} names no function: write FILE.py:FUNCTION, for example my_train.py:train")
        if not where.endswith(".py"):
            return cls(name, module=where)
        file = Path(where)
        if not file.is_file():
            raise ValueError(
                f"there is no file {where} (looked for in {Path.cwd()}): name the file that holds {name}()"
            )
        return cls(name, file=file.resolve())

    @classmethod
    def of(cls, function: Callable[[Trial], Any]) -> OwnFunction:
        """Find the file or module of a Python function."""
        name = getattr(function, "__qualname__", "")
        if not name.isidentifier() or not inspect.isroutine(function):
            raise ValueError(
                f"train must be a function at the top level of a file, which a new process can import, got "
                f"{function!r}: write def train(trial): in a file, not a lambda, a method or a function inside another"
            )
        module = inspect.getmodule(function)
        spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        if spec is not None and spec.parent:
            return cls(name, module=spec.name)
        if file is None or not Path(file).is_file():
            raise ValueError(
                f"train is {name}() of {getattr(module, '__name__', 'no module')!r}, which is not in a file, as in a "
                "notebook: save it in one, for example my_train.py, and give its name: "
                f'infobatch.compare("my_train.py:{name}", ...)'
            )
        return cls(name, file=Path(file).resolve())

    def __str__(self) -> str:
        return f"{self.module if self.file is None else self.file.name}:{self.name}"

    @property
    def folder(self) -> str:
        """The name of a folder for its runs."""
        return f"{self.module if self.file is None else self.file.stem}-{self.name}"
