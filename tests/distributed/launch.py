"""Start real processes: by torchrun, or forked from a server that has torch loaded already (two seconds cheaper each).

Ranks talk over loopback with gloo. When one dies, the others of its group are killed, as torchrun's agent does.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[2]
RANK = str(Path(__file__).with_name("rank.py"))  # what torchrun starts in place of a script, and gives the script to
PATIENCE = 240  # seconds; the machine may be busy, and nothing here is about time

_context = multiprocessing.get_context("forkserver")
# torch._dynamo is what the first optimiser of a process would load.
_context.set_forkserver_preload(
    ["torch._dynamo", "torch.distributed.fsdp", "torchdata.stateful_dataloader", "infobatch"]
)


def environment() -> dict[str, str]:
    """This process's environment, with the packages of the tree in sight and one thread per process."""
    paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
        # torch 2.13 shares one store between restarts, where new ranks read the addresses of dead ones and fail.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def torchrun(
    script: Path, *arguments: object, ranks: int = 2, restarts: int = 0, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` under torchrun on this machine and return what it printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--max-restarts={restarts}"]
    return _run([*command, RANK, str(script), *map(str, arguments)], fails)


def python(script: Path, *arguments: object, fails: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``script`` by itself and return what it printed."""
    return _run([sys.executable, str(script), *map(str, arguments)], fails)


def _run(command: list[str], fails: bool) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def forked(world: int, work: Callable[..., None], *arguments: Any) -> list[int]:
    """Call ``work(*arguments)`` in ``world`` new processes that form a process group; returns their exit codes."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        members = [
            _context.Process(target=_member, args=(rank, world, meeting, work, arguments)) for rank in range(world)
        ]
        for member in members:
            member.start()
        running = list(members)
        while running:
            ended = multiprocessing.connection.wait([member.sentinel for member in running], timeout=PATIENCE)
            running = [member for member in running if member.sentinel not in ended]
            for member in members:
                member.join(0)
            if not ended or any(member.exitcode for member in members):
                for member in running:
                    member.kill()
        for member in members:
            member.join()
        return [member.exitcode or 0 for member in members]


def _member(rank: int, world: int, meeting: str, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # for the loaders' workers, as in any script on Linux
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE)
        )
        dist.barrier()
    try:
        work(*arguments)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # at once: a clean end would wait for the other ranks
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()
