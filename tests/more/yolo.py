"""Small data sets and models for Ultralytics, drawn and written down by the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from ultralytics import YOLO
from ultralytics.cfg import get_cfg

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples" / "yolo_tiny.yaml"
SIZE = 64
HEADS = {
    "detect": "[[9, 6], 1, Detect, [nc]]",
    "segment": "[[9, 6], 1, Segment, [nc, 8, 16]]",
    "segment26": "[[9, 6], 1, Segment26, [nc, 8, 16]]",
    "classify": "[6, 1, Classify, [nc]]",
}


def yaml(folder: Path, head: str = "detect", end2end: bool = False, reg_max: int = 16) -> str:
    """A model's file, for a task."""
    text = TINY.read_text().replace(HEADS["detect"], HEADS[head])
    if head == "classify":
        text = text.split("head:")[0] + "head:\n  - [-1, 1, Classify, [nc]]\n"
    text += f"reg_max: {reg_max}\n" + ("end2end: True\n" if end2end else "")
    path = folder / f"{head}-{end2end}-{reg_max}.yaml"
    path.write_text(text)
    return str(path)


def scenes(folder: Path, train: int = 21, val: int = 4, task: str = "detect") -> str:
    """Squares and discs, their boxes or outlines, and one image without any; the data set's file."""
    rng = np.random.default_rng(0)
    for split, count in {"train": train, "val": val}.items():
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            image = rng.integers(0, 60, (SIZE, SIZE, 3), np.uint8)
            lines = []
            for _ in range(0 if number == 3 else int(rng.integers(1, 5))):
                cls, side = int(rng.integers(3)), int(rng.integers(10, 26))
                x, y = (int(rng.integers(SIZE - side)) for _ in range(2))
                colour = [0, 0, 0]
                colour[cls] = 255
                cv2.rectangle(image, (x, y), (x + side, y + side), colour, -1)
                left, top, right, bottom = (value / SIZE for value in (x, y, x + side, y + side))
                if task == "segment":
                    lines.append(f"{cls} {left} {top} {right} {top} {right} {bottom} {left} {bottom}\n")
                else:
                    lines.append(f"{cls} {(left + right) / 2} {(top + bottom) / 2} {right - left} {bottom - top}\n")
            cv2.imwrite(str(folder / "images" / split / f"{number:03}.png"), image)
            (folder / "labels" / split / f"{number:03}.txt").write_text("".join(lines))
    path = folder / "data.yaml"
    path.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{0: a, 1: b, 2: c}}\n")
    return str(path)


def colours(folder: Path, train: int = 30, val: int = 6) -> str:
    """Images of one colour each, in a folder for each class."""
    rng = np.random.default_rng(0)
    for split, count in {"train": train, "val": val}.items():
        for number in range(count):
            image = rng.integers(0, 60, (SIZE, SIZE, 3), np.uint8)
            image[..., number % 3] += 120
            (folder / split / "abc"[number % 3]).mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(folder / split / "abc"[number % 3] / f"{number:03}.png"), image)
    return str(folder)


def train(model: str | Path, data: str, folder: Path, **options: Any) -> Any:
    """Train and return the trainer."""
    yolo = YOLO(model, task=options.pop("task", None), verbose=False)
    for event, callback in options.pop("callbacks", {}).items():
        yolo.add_callback(event, callback)
    usual = {"imgsz": SIZE, "batch": 4, "nbs": 4, "device": "cpu", "amp": False, "plots": False, "verbose": False}
    schedule = {"warmup_epochs": 1, "close_mosaic": 1}
    yolo.train(data=data, project=str(folder), name="run", **{**usual, **schedule, **options})
    return yolo.trainer


def batch_of(images: int, rng: torch.Generator, masks: bool = False) -> dict[str, Any]:
    """A batch as Ultralytics' data set makes it: several boxes in an image, and none in the last."""
    boxes = torch.randint(1, 4, (images,), generator=rng)
    boxes[-1] = 0
    count = int(boxes.sum())
    sides = 0.2 + 0.3 * torch.rand(count, 2, generator=rng)
    centres = sides / 2 + (1 - sides) * torch.rand(count, 2, generator=rng)
    batch = {
        "img": torch.rand(images, 3, SIZE, SIZE, generator=rng),
        "batch_idx": torch.repeat_interleave(torch.arange(images), boxes).float(),
        "cls": torch.randint(0, 3, (count, 1), generator=rng).float(),
        "bboxes": torch.cat([centres, sides], 1),
        "index": tuple(range(images)),
    }
    if masks:
        batch["masks"] = torch.zeros(images, SIZE // 4, SIZE // 4)
        for image in range(images):
            mine = batch["bboxes"][batch["batch_idx"] == image] * (SIZE // 4)
            for number, (x, y, w, h) in enumerate(mine.tolist(), 1):
                batch["masks"][image, int(y - h / 2) : int(y + h / 2) + 1, int(x - w / 2) : int(x + w / 2) + 1] = number
        batch["sem_masks"] = torch.randint(0, 3, (images, SIZE // 4, SIZE // 4), generator=rng)
    return batch


def model_of(path: str, task: str) -> Any:
    """A model with random weights, ready to be trained."""
    model = YOLO(path, task=task, verbose=False).model
    model.args = get_cfg()
    model.train()
    return model
