"""All data sets that a recipe can name, and the files each needs."""

from __future__ import annotations

from typing import NamedTuple

from . import alpaca, banking, datasets, fashion_scenes, scenes
from .source import Source


class Entry(NamedTuple):
    """A data set: its name in a recipe, its kind of data, the files it needs, and where to get them."""

    name: str
    holds: str
    needs: str
    home: str


def entries() -> list[Entry]:
    """All data sets, grouped by kind."""
    return [
        *(_entry(name, "images", source) for name, source in datasets.SOURCES.items()),
        Entry(datasets.PACKAGED, "images", "nothing", "10,000 images of fashion-mnist that come with the package"),
        Entry(
            f"{datasets.HUGGING_FACE}NAME",
            "images",
            "no folder: NAME is one that save_to_disk wrote, or a name on the hub",
            "https://huggingface.co/datasets (with the package datasets)",
        ),
        *(_entry(name, "label maps", source) for name, source in scenes.SOURCES.items()),
        Entry(
            fashion_scenes.NAME,
            "boxes",
            "nothing, or the files of fashion-mnist",
            "made of the 10,000 images of fashion-mnist that come with the package, or of all 60,000",
        ),
        _entry(alpaca.NAME, "texts", alpaca.SOURCE),
        _entry(banking.NAME, "texts", banking.SOURCE),
    ]


def _entry(name: str, holds: str, source: Source) -> Entry:
    further = f" (also in {', '.join(source.folders)})" if source.folders else ""
    return Entry(name, holds, " or ".join(source.files) + further, source.home)
