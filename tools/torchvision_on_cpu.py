"""Lets a GPU build of torchvision be imported beside a CPU build of torch, in the development environment.

Such a build cannot load its own operators, and its import then fails where it describes two of them. Run as a script,
which the Makefile does, this file puts itself, and a ``.pth`` that imports it at start, into the environment; the two
operators are then declared just before torchvision is first imported. ``nms``, which detectors need to be validated,
is implemented here in plain torch; all others are missing. The library itself knows nothing of this.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """Of boxes that overlap by more than the threshold, the one with the highest score: their numbers, best first."""
    import torch

    order = scores.argsort(descending=True, stable=True)
    left, top, right, bottom = boxes[order].unbind(1)
    area = (right - left) * (bottom - top)
    kept, open_ = [], torch.ones(len(order), dtype=torch.bool)
    for place in range(len(order)):
        if open_[place]:
            kept.append(place)
            width = (torch.minimum(right, right[place]) - torch.maximum(left, left[place])).clamp(min=0)
            height = (torch.minimum(bottom, bottom[place]) - torch.maximum(top, top[place])).clamp(min=0)
            both = width * height
            open_ &= both / (area + area[place] - both) <= iou_threshold
    return order[torch.tensor(kept, dtype=torch.int64)]


class _DeclareFirst(MetaPathFinder):
    """Finds nothing; acts when torchvision is looked for."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "torchvision.ops":
            sys.meta_path.remove(self)
            if hasattr(self, "library"):
                sys.modules["torchvision.extension"]._assert_has_ops = lambda: None  # called before nms
        if fullname == "torchvision" and not hasattr(self, "library"):  # some look for it before they import it
            import torch

            if torch.version.cuda is None and "+cpu" not in metadata.version("torchvision"):
                self.library = torch.library.Library("torchvision", "FRAGMENT")
                for schema in SCHEMAS:
                    self.library.define(schema)
                self.library.impl("nms", nms, "CPU")
                sys.modules[__name__].kept = self.library  # declared for as long as the process lives


if __name__ == "__main__":
    site = Path(sysconfig.get_path("purelib"))
    shutil.copy(__file__, site)
    (site / "torchvision_on_cpu.pth").write_text("import torchvision_on_cpu\n")
else:
    sys.meta_path.insert(0, _DeclareFirst())
