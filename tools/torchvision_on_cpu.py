"""Lets a GPU build of torchvision be imported beside a CPU build of torch, in the development environment.

Such a build cannot load its own operators, and its import then fails where it describes two of them. Run as a script,
which the Makefile does, this file puts itself, and a ``.pth`` that imports it at start, into the environment; the two
operators are then declared, without an implementation, just before torchvision is first imported. The library itself
knows nothing of this.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class _DeclareFirst(MetaPathFinder):
    """Finds nothing; acts when torchvision is looked for."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch

            if torch.version.cuda is None and "+cpu" not in metadata.version("torchvision"):
                self.library = torch.library.Library("torchvision", "FRAGMENT")
                for schema in SCHEMAS:
                    self.library.define(schema)
                sys.modules[__name__].kept = self.library  # declared for as long as the process lives


if __name__ == "__main__":
    site = Path(sysconfig.get_path("purelib"))
    shutil.copy(__file__, site)
    (site / "torchvision_on_cpu.pth").write_text("import torchvision_on_cpu\n")
else:
    sys.meta_path.insert(0, _DeclareFirst())
