"""Gather what the selection methods need from a model and a loader, in one pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from .collected import Collected
from .deepfool import deepfool as distances_of
from .dynamics import Dynamics

Batches = Iterable[Any]


def collect(
    model: nn.Module,
    loader: Batches,
    *,
    layer: nn.Linear | None = None,
    forward: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] | None = None,
    deepfool: bool = False,
    dynamics: Dynamics | None = None,
    progress: bool | Callable[[Batches], Batches] = True,
) -> Collected:
    """Features, logits and labels of every sample, in the order of the dataset; the model is not changed.

    Args:
        model: a classifier that ends in a linear layer. It is run in ``eval()`` mode, and put back afterwards.
        loader: all batches, in the order of the dataset: no shuffling, nothing dropped.
        layer: the last layer, whose inputs are the features; None: the linear layer that was registered last.
        forward: (model, batch) → (logits, labels). None: for batches (x, y, …), and for mappings with "labels" if the
            model returns an object with ``.logits``.
        deepfool: also measure how far each input is from the decision boundary: tens of backward passes per batch.
        dynamics: the record kept while training, to include it.
        progress: True shows a bar on a terminal, if rich is installed; False shows none; a function wraps the loader.
    """
    check_order(loader)
    layer = last_layer(model) if layer is None else layer
    device = layer.weight.device
    seen: list[tuple[Tensor, Tensor]] = []
    hook = layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0].detach(), output.detach())))
    features, logits, labels, distances = [], [], [], []
    try:
        with in_eval_mode(model), torch.no_grad():
            for batch in with_progress(loader, progress):
                batch = move(batch, device)
                seen.clear()
                out, target = (forward or read)(model, batch)
                check_layer(seen, out, target)
                features.append(array(seen[0][0]))
                logits.append(array(out))
                labels.append(target.cpu().numpy())
                if deepfool:
                    distances.append(array(distances_of(model, first_input(batch))))
    finally:
        hook.remove()
    if not logits:
        raise ValueError("loader is empty: it must give at least one batch")
    collected = Collected(
        features=np.concatenate(features),
        logits=np.concatenate(logits),
        labels=np.concatenate(labels),
        correct=None if dynamics is None else dynamics.correct,
        distances=np.concatenate(distances) if deepfool else None,
        bias=layer.bias is not None,
    )
    check_complete(loader, len(collected))
    return collected


def last_layer(model: nn.Module) -> nn.Linear:
    """The linear layer that was registered last."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ValueError(f"layer: {type(model).__name__} has no torch.nn.Linear; pass its last layer: layer=model.…")
    return layers[-1]


def read(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Logits and labels of the two usual kinds of batches."""
    if isinstance(batch, Mapping) and "labels" in batch:
        return model(**batch).logits, batch["labels"]
    if isinstance(batch, list | tuple) and len(batch) >= 2:
        return model(batch[0]), batch[1]
    raise TypeError(
        f"batch must be (inputs, labels, …) or a mapping with 'labels', got {type(batch).__name__}: "
        "give forward=, a function of the model and a batch that returns logits and labels"
    )


def first_input(batch: Any) -> Tensor:
    """The inputs that DeepFool changes."""
    if isinstance(batch, list | tuple) and isinstance(batch[0], Tensor) and batch[0].is_floating_point():
        return batch[0]
    raise TypeError("deepfool changes the inputs: batches must be (floating-point tensor, labels, …)")


# -- checks -------------------------------------------------------------------------------------------------------


def check_order(loader: Batches) -> None:
    """Raise unless row i of the arrays will be sample i."""
    if not isinstance(loader, DataLoader):
        return
    batches = loader.batch_sampler
    plain = batches is None or type(batches) is BatchSampler
    sampler = loader.sampler if batches is None else getattr(batches, "sampler", None)
    if not plain or type(sampler) is not SequentialSampler or not getattr(loader, "in_order", True):
        raise ValueError(
            f"loader must go through the dataset in its order, but uses {type(sampler if plain else batches).__name__}"
            f"{'' if getattr(loader, 'in_order', True) else ' and in_order=False'}: rows would belong to the wrong "
            "samples. Make one with DataLoader(dataset, batch_size=...), without shuffling or a sampler"
        )


def check_complete(loader: Batches, count: int) -> None:
    """Raise unless every sample has its row."""
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, Sized) and len(dataset) != count:
        raise ValueError(
            f"loader gave {count} of the dataset's {len(dataset)} samples: make it with drop_last=False "
            "and, under several processes, without sharding"
        )


def check_layer(seen: list[tuple[Tensor, Tensor]], logits: Tensor, labels: Tensor) -> None:
    """Raise unless the layer runs once per batch, on one vector per sample, and returns the logits."""
    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"the model must return logits (samples, classes) and one label per sample, got {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}: pass forward=, a function of the model and a batch that returns both"
        )
    if len(seen) != 1 or seen[0][1].shape != logits.shape or not torch.equal(seen[0][1], logits):
        raise ValueError(
            "layer must be the last layer, whose outputs are the logits; this one is not "
            f"(it ran {len(seen)} times per batch): pass the last layer, layer=model.…"
        )


# -- helpers --------------------------------------------------------------------------------------------------------


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, and each module back into its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def with_progress(loader: Batches, progress: bool | Callable[[Batches], Batches]) -> Batches:
    """The batches, with a progress bar on a terminal."""
    if callable(progress):
        return progress(loader)
    if progress and sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import track
        except ModuleNotFoundError:
            return loader
        return track(loader, "collecting", console=Console(stderr=True))
    return loader


def move(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on the model's device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [move(value, device) for value in batch]
    return batch


def array(values: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """The values as a float32 array, or float64 if they are float64."""
    values = values.detach().cpu()
    return (values if values.dtype == torch.float64 else values.float()).numpy()
