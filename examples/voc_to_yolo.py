"""Turn Pascal VOC annotations (a folder with Annotations, ImageSets/Main and JPEGImages) into what Ultralytics reads.

    python examples/voc_to_yolo.py path/to/bccd output

Writes ``output/images``, ``output/labels`` and ``output/data.yaml``; images are linked, not copied. Trains on ``train``
and, with ``--train trainval --val test``, on more.
"""

import argparse
import xml.etree.ElementTree as ET
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("voc", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--train", default="train")
    parser.add_argument("--val", default="val")
    args = parser.parse_args()
    names: list[str] = []
    for split in (args.train, args.val):
        sets = next(args.voc.glob(f"ImageSets/**/{split}.txt"))
        for stem in sets.read_text().split():
            convert(args.voc, args.output, split, stem, names)
    listed = "".join(f"  {number}: {name}\n" for number, name in enumerate(names))
    yaml = f"path: {args.output.resolve()}\ntrain: images/{args.train}\nval: images/{args.val}\nnames:\n{listed}"
    (args.output / "data.yaml").write_text(yaml)
    print(f"{args.output / 'data.yaml'}: classes {', '.join(names)}")


def convert(voc: Path, output: Path, split: str, stem: str, names: list[str]) -> None:
    """One image and its boxes; ``names`` gets the classes in the order in which they are met."""
    tree = ET.parse(voc / "Annotations" / f"{stem}.xml").getroot()
    width, height = (float(tree.findtext(f"size/{side}")) for side in ("width", "height"))
    lines = []
    for thing in tree.iter("object"):
        name = thing.findtext("name")
        if name not in names:
            names.append(name)
        left, top, right, bottom = (
            float(thing.findtext(f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax")
        )
        left, right = max(left, 0) / width, min(right, width) / width
        top, bottom = max(top, 0) / height, min(bottom, height) / height
        centre = f"{(left + right) / 2:.6f} {(top + bottom) / 2:.6f} {right - left:.6f} {bottom - top:.6f}"
        lines.append(f"{names.index(name)} {centre}\n")
    images, labels = output / "images" / split, output / "labels" / split
    for folder in (images, labels):
        folder.mkdir(parents=True, exist_ok=True)
    link = images / f"{stem}.jpg"
    if not link.exists():
        link.symlink_to((voc / "JPEGImages" / f"{stem}.jpg").resolve())
    (labels / f"{stem}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
