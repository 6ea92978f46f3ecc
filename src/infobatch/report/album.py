"""The samples that a report shows: which ones, and as what."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import mean

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..records import RunRecord
from .outcome import Outcome

Pictures = Mapping[int, tuple[NDArray[np.uint8], str]]

SHOWN = 12
THUMBNAIL = 128  # pixels that the longer side of a picture keeps at most


@dataclass(frozen=True)
class Named:
    """A sample that ``seeds`` of a method's runs named, with the mean of what they said of it."""

    index: int
    value: float
    seeds: int


def hardest(outcome: Outcome) -> list[Named]:
    """The samples of the highest scores."""
    return _named(outcome, lambda run: run.hardest)


def most_pruned(outcome: Outcome) -> list[Named]:
    """The samples that were left out most often; full data leaves none out."""
    return [named for named in _named(outcome, lambda run: run.most_pruned) if named.value > 0]


def _named(outcome: Outcome, said: Callable[[RunRecord], tuple[tuple[int, float], ...]]) -> list[Named]:
    """By how many seeds agree, then by what they say: a run tells of its first few samples only."""
    values: dict[int, list[float]] = {}
    for run in outcome.runs:
        for index, value in said(run):
            values.setdefault(index, []).append(value)
    found = [Named(index, mean(said), len(said)) for index, said in values.items()]
    return sorted(found, key=lambda named: (-named.seeds, -named.value, named.index))[:SHOWN]


@dataclass(frozen=True)
class Album:
    """Pictures by index, each encoded once."""

    pictures: Pictures
    _encoded: dict[int, str] = field(default_factory=dict, repr=False)

    def gallery(self, samples: list[Named], of: int, form: str) -> str:
        """The samples as HTML. ``of`` is how many seeds could have named one; ``form`` puts the value into words."""
        return f'<ul class="gallery">{"".join(self._item(named, of, form) for named in samples)}</ul>'

    def _item(self, named: Named, of: int, form: str) -> str:
        notes = [f"sample {named.index}", form.format(named.value)]
        if of > 1:
            notes.append(f"{named.seeds} of {of} seeds")
        told = "".join(f"<span>{note}</span>" for note in notes)
        if named.index not in self.pictures:
            return f"<li><p>{told}</p></li>"
        image, caption = self.pictures[named.index]
        if named.index not in self._encoded:
            self._encoded[named.index] = encode(image, named.index)
        # Few pixels are shown as the squares they are, many are smoothed.
        smooth = ' class="smooth"' if max(image.shape[:2]) > THUMBNAIL // 2 else ""
        picture = f'<img{smooth} src="{self._encoded[named.index]}" alt="{html.escape(caption)}" loading="lazy">'
        return f"<li>{picture}<p>{html.escape(caption)}{told}</p></li>"


def encode(image: NDArray[np.uint8], index: int) -> str:
    """A small PNG inside of a link."""
    shape, channels = np.shape(image), (1, 3, 4)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or len(shape) != 3 or shape[2] not in channels:
        kind = getattr(image, "dtype", type(image).__name__)
        raise ValueError(
            f"pictures[{index}] must be an array of height × width × 1, 3 or 4 bytes, got {kind} of shape {shape}: "
            "convert it with .astype(np.uint8), and a grey one with image[..., None]"
        )
    picture = Image.fromarray(image[..., 0] if shape[2] == 1 else image)
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    content = io.BytesIO()
    picture.save(content, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
