"""Where a data set lies: what is looked for, in which folders, and what to tell those who do not have it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# Where data sets usually lie: beside the script, and in the caches of torchvision's users, of Keras and of ours.
USUAL = (
    Path("data"),
    Path.home() / "data",
    Path.home() / ".cache" / "torchvision",
    Path.home() / ".keras" / "datasets",
    Path.home() / ".cache" / "infobatch",
)


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, ``home``, and the files or folders that it is known by: the first one found is read.

    They may also lie one step further in, in one of ``folders``.
    """

    files: tuple[str, ...]
    home: str
    folders: tuple[str, ...] = field(default=(), kw_only=True)

    def find(self, name: str, folder: str | Path | None) -> Path:
        """The file or folder by which the data set ``name`` is known, in ``folder`` or where data sets usually lie."""
        places = USUAL if folder is None else (Path(folder),)
        inner = ("", *self.folders)
        for path in (place / folder / file for place in places for file in self.files for folder in inner):
            if path.exists():
                return path
        further = f", nor in {', '.join(self.folders)} there" if self.folders else ""
        raise FileNotFoundError(
            f"{name}: none of {', '.join(self.files)} in {', '.join(map(str, places))}{further}. Get it from "
            f"{self.home}, put it into one of these folders, or say where it is: --data FOLDER"
        )
