"""The examples of these frameworks run, as their first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

from more import yolo

EXAMPLES = yolo.ROOT / "examples"


def python(script: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ultralytics_on_voc_data(tmp_path: Path) -> None:
    voc = tmp_path / "voc"
    for folder in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (voc / folder).mkdir(parents=True)
    for number in range(12):
        Image.new("RGB", (64, 48), (20 * number, 0, 0)).save(voc / "JPEGImages" / f"{number}.jpg")
        box = "<bndbox><xmin>8</xmin><ymin>0</ymin><xmax>24</xmax><ymax>12</ymax></bndbox>"
        size = "<size><width>64</width><height>48</height></size>"
        thing = f"<object><name>{'cell' if number % 2 else 'dot'}</name>{box}</object>"
        (voc / "Annotations" / f"{number}.xml").write_text(f"<annotation>{size}{thing}</annotation>")
    (voc / "ImageSets/Main/train.txt").write_text("\n".join(map(str, range(9))))
    (voc / "ImageSets/Main/val.txt").write_text("9\n10\n11\n")
    assert "classes dot, cell" in python("voc_to_yolo.py", voc, tmp_path / "cells")
    assert (tmp_path / "cells/labels/train/1.txt").read_text() == "1 0.250000 0.125000 0.250000 0.250000\n"

    data, project = tmp_path / "cells/data.yaml", tmp_path / "runs"
    options = [
        "--epochs",
        3,
        "--imgsz",
        64,
        "--batch",
        4,
        "--device",
        "cpu",
        "--project",
        project,
        "--method",
        "infobatch",
    ]
    assert "of full training (3 epochs of 9 samples)" in python("ultralytics_train.py", data, *options)


def test_fastai() -> None:
    out = python("fastai_train.py", "--epochs", 4, "--samples", 500)
    assert "of full training (4 epochs of 500 samples)" in out


def test_keras() -> None:
    out = python("keras_train.py", "--epochs", 4, "--samples", 500)
    assert "of full training (4 epochs of 500 samples)" in out
