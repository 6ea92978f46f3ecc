"""Where a task computes, in which precision, and the random generator its layers use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_REDUCED = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(precision: str, device: torch.device | str | None = None) -> torch.device:
    """The device that is named, else the GPU if there is one, else the CPU; it must have the recipe's precision."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if precision == "fp16" and chosen.type == "cpu":
        raise ValueError("precision fp16 needs a GPU: on the CPU take fp32, or bf16 where the processor has it")
    return chosen


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Automatic mixed precision for a recipe's precision; nothing for fp32."""
    reduced = _REDUCED.get(precision)
    return torch.autocast(device.type, reduced, enabled=reduced is not None)


@contextmanager
def using_generator(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Layers that draw from torch's global generators draw as ``generator`` says; these are as before afterwards."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def wait_for(device: torch.device) -> None:
    """Return when all that was asked of a GPU is done, so that a clock read then has seen it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
