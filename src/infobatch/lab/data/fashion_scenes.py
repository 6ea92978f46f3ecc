"""Scenes made of Fashion-MNIST pictures, with known boxes: data for object detection."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from . import fashion

NAME = "fashion-scenes"
SIDE = 64  # pixels along a side of a scene
OBJECTS = 4  # the most pictures in a scene
_SIZES = (20, 36)  # pixels along a picture's side, before its black margin is cut off
_TRIES = 10  # attempts to find a free place


class Scene(NamedTuple):
    """A picture, 1 × height × width bytes, with the classes and boxes (see ``scoring.detection``) of its objects."""

    image: Tensor
    labels: Tensor
    boxes: Tensor


def scene(pictures: fashion.Split, stream: int, number: int) -> Scene:
    """Scene ``number`` of a stream: one to ``OBJECTS`` pictures at random, scaled and placed without overlap."""
    rng = np.random.default_rng((stream, number))
    canvas, occupied = torch.zeros(SIDE, SIDE, dtype=torch.uint8), torch.zeros(SIDE, SIDE, dtype=torch.bool)
    labels, boxes = [], []
    for chosen in rng.choice(len(pictures.images), rng.integers(1, OBJECTS + 1), replace=False):
        size = int(rng.integers(*_SIZES, endpoint=True))
        picture = _crop_border(_resize(torch.from_numpy(pictures.images[chosen]), size))
        height, width = picture.shape
        for _ in range(_TRIES):
            top, left = (int(rng.integers(SIDE - side, endpoint=True)) for side in (height, width))
            place = slice(top, top + height), slice(left, left + width)
            if not occupied[place].any():
                canvas[place], occupied[place] = picture, True
                labels.append(int(pictures.labels[chosen]))
                boxes.append([left + width / 2, top + height / 2, width, height])
                break
    return Scene(canvas[None], torch.tensor(labels), torch.tensor(boxes) / SIDE)


def _resize(picture: Tensor, size: int) -> Tensor:
    scaled = nn.functional.interpolate(picture[None, None].float(), (size, size), mode="bilinear", antialias=True)
    return scaled[0, 0].round().to(torch.uint8)


def _crop_border(picture: Tensor) -> Tensor:
    """Cut off the black rows and columns at the border."""
    rows, columns = (picture.any(axis).nonzero() for axis in (1, 0))
    return picture[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]


class FashionScenes(Dataset[Scene]):
    """The first ``count`` scenes of a stream, in memory."""

    def __init__(self, pictures: fashion.Split, stream: int, count: int) -> None:
        self.scenes = [scene(pictures, stream, number) for number in range(count)]

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> Scene:
        return self.scenes[index]
