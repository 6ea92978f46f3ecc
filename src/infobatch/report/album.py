"""The samples that a report shows: which ones, and how they look on the page."""

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
THUMBNAIL = 128  # pixels of the longer side of a picture, at most


@dataclass(frozen=True)
class RankedSample:
    """A sample that the records of ``seeds`` runs of a method name, with the mean of its values there."""

    index: int
    value: float
    seeds: int


def list_hardest(outcome: Outcome) -> list[RankedSample]:
    """The samples with the highest scores."""
    return _rank_samples(outcome, lambda run: run.hardest)


def list_most_pruned(outcome: Outcome) -> list[RankedSample]:
    """The samples that were left out most often; full data leaves none out."""
    return [sample for sample in _rank_samples(outcome, lambda run: run.most_pruned) if sample.value > 0]


def _rank_samples(
    outcome: Outcome, read_list: Callable[[RunRecord], tuple[tuple[int, float], ...]]
) -> list[RankedSample]:
    """Rank by the number of seeds that name a sample, then by its mean value: a record names only a few samples."""
    values: dict[int, list[float]] = {}
    for run in outcome.runs:
        for index, value in read_list(run):
            values.setdefault(index, []).append(value)
    samples = [RankedSample(index, mean(own), len(own)) for index, own in values.items()]
    return sorted(samples, key=lambda sample: (-sample.seeds, -sample.value, sample.index))[:SHOWN]


@dataclass(frozen=True)
class Album:
    """Pictures by index, each encoded once."""

    pictures: Pictures
    _encoded: dict[int, str] = field(default_factory=dict, repr=False)

    def gallery(self, samples: list[RankedSample], seeds: int, form: str) -> str:
        """The samples as HTML. ``seeds`` is the number of the method's runs; ``form`` puts the value into words."""
        return f'<ul class="gallery">{"".join(self._item(sample, seeds, form) for sample in samples)}</ul>'

    def _item(self, sample: RankedSample, seeds: int, form: str) -> str:
        notes = [f"sample {sample.index}", form.format(sample.value)]
        if seeds > 1:
            notes.append(f"{sample.seeds} of {seeds} seeds")
        words = "".join(f"<span>{note}</span>" for note in notes)
        if sample.index not in self.pictures:
            return f"<li><p>{words}</p></li>"
        image, caption = self.pictures[sample.index]
        if sample.index not in self._encoded:
            self._encoded[sample.index] = encode(image, sample.index)
        # Small pictures show their pixels as squares, large ones are smoothed.
        smooth = ' class="smooth"' if max(image.shape[:2]) > THUMBNAIL // 2 else ""
        picture = f'<img{smooth} src="{self._encoded[sample.index]}" alt="{html.escape(caption)}" loading="lazy">'
        return f"<li>{picture}<p>{html.escape(caption)}{words}</p></li>"


def encode(image: NDArray[np.uint8], index: int) -> str:
    """The picture as a small PNG in a data: link."""
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
