"""Where a task computes, in which precision, and the random generator its layers use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_REDUCED = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(precision: str, device: torch.device | str | None = None) -> torch.device:
    """The named device, else the GPU if there is one, else the CPU; it must support the recipe's precision."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if precision == "fp16" and chosen.type == "cpu":
        raise ValueError("precision fp16 needs a GPU: on the CPU take fp32, or bf16 if the processor has it")
    return chosen


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Automatic mixed precision for a recipe's precision; switched off for fp32."""
    reduced = _REDUCED.get(precision)
    return torch.autocast(device.type, reduced, enabled=reduced is not None)


@contextmanager
def using_generator(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, which layers draw from, by ``generator``; put them back at the end."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done its work, so that a clock read after that includes the work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
