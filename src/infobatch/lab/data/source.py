"""How a data set is found: its files, the folders to search, and where to get it if it is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# Where data sets usually are: in ./data and ~/data, and in the caches of torchvision, Keras and infobatch.
USUAL = (
    Path("data"),
    Path.home() / "data",
    Path.home() / ".cache" / "torchvision",
    Path.home() / ".keras" / "datasets",
    Path.home() / ".cache" / "infobatch",
)


@dataclass(frozen=True)
class Source:
    """The ``files`` or folders that show where a data set is, the first of which is read, and its ``home`` on the web.

    They may also be one level deeper, in one of ``folders``.
    """

    files: tuple[str, ...]
    home: str
    folders: tuple[str, ...] = field(default=(), kw_only=True)

    def find(self, name: str, folder: str | Path | None) -> Path:
        """Find the first of the files, in ``folder`` or where data sets usually are."""
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
