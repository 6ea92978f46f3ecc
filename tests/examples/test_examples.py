"""Every example runs, as its first lines say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distributed.launch import PATIENCE, RANK, ROOT, environment, python, torchrun
from distributed.training import differences
from infobatch import checkpoint

pytestmark = pytest.mark.slow  # whole trainings, on several processes, killed and resumed

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_training_on_two_ranks(name: str) -> None:
    done = torchrun(EXAMPLES / f"{name}.py", "--epochs", 3, "--samples", 1000)

    assert re.search(r"saved [1-9]\d?\.\d% of full training", done.stdout)
    assert "test accuracy" in done.stdout
    assert "with 2 processes" in done.stdout


RESUME = ["--epochs", "3", "--samples", "1503", "--every", "2", "--batch-size", "16"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_resume_after_a_kill(ranks: int, tmp_path: Path) -> None:
    """The checkpoint at the end is the one of a run that nobody killed."""
    whole, killed = tmp_path / "whole.pt", tmp_path / "killed.pt"
    script = EXAMPLES / "resume.py"
    if ranks == 1:
        python(script, *RESUME, "--checkpoint", whole)
        assert kill_when_saved([sys.executable, str(script)], killed) == -signal.SIGKILL
        done = python(script, *RESUME, "--checkpoint", killed)
    else:
        torchrun(script, *RESUME, "--checkpoint", whole)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        out = tmp_path / "out"
        assert kill_when_saved([*command, "--max-restarts=3", RANK, str(script)], killed, of_agent=True, out=out) == 0
        done = subprocess.CompletedProcess([], 0, out.read_text())

    assert "goes on after step" in done.stdout
    assert f"rank {ranks - 1} goes on" in done.stdout
    assert differences(checkpoint.load(whole), checkpoint.load(killed)) == []


def kill_when_saved(command: list[str], path: Path, of_agent: bool = False, out: Path | None = None) -> int:
    """Start, wait for the second checkpoint, kill the process (or a rank of the agent), return the exit code."""
    with open(out or os.devnull, "w") as output:
        arguments = [*command, *RESUME, "--checkpoint", str(path)]
        process = subprocess.Popen(arguments, env=environment(), stdout=output, stderr=subprocess.DEVNULL)
        first = None
        while process.poll() is None and (first is None or path.stat().st_ino == first):
            if path.exists() and first is None:
                first = path.stat().st_ino
            time.sleep(0.005)
        victim = process.pid
        if of_agent:
            victim = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1])
        os.kill(victim, signal.SIGKILL)
        return process.wait(timeout=PATIENCE)
