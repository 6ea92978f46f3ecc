"""One job in its own process: start it, follow its epochs, end it with this process, and say why it failed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..files import write_text
from ..records import Tick
from . import child
from .runs import EPOCHS, RECORD
from .trial import read_row

JOB, OUTPUT = "job.json", "output.txt"
PATIENCE = 10.0  # seconds that a run may take to end when asked to
LOOK_EVERY = 0.2  # seconds
TAIL = 15  # lines of a failed run's output that are shown
START = (
    "import json, sys; job = json.load(open(sys.argv[1], encoding='utf-8')); sys.argv[:] = [job['file'] or '']; "
    "sys.path[:] = job['path']; from infobatch.lab.child import main; main(job)"
)
Watch = Callable[[Tick], None]


class NotLoadedError(RuntimeError):
    """The function cannot be loaded in a new process, so that every run would fail."""


@dataclass(frozen=True)
class Failure:
    """A run that failed: the reason, and the last lines of its output."""

    method: str
    seed: int
    reason: str
    output: Path
    tail: str

    def __str__(self) -> str:
        return f"{self.method}, seed {self.seed}: {self.reason}"


def run_job(job: child.Job, watch: Watch) -> Failure | None:
    """Do one run; None if it finished and its record is written."""
    place = Path(job.place)
    place.mkdir(parents=True, exist_ok=True)
    (place / child.FAILURE).unlink(missing_ok=True)
    write_text(place / JOB, job.to_json() + "\n")
    with (place / OUTPUT).open("ab") as output:
        code = _run_process(place / JOB, output, _EpochReader(job, place / EPOCHS, watch))
    (place / JOB).unlink()
    if code == 0 and (place / RECORD).exists():
        return None
    reason = _reason(place, code)
    if code == child.NOT_LOADED:
        where = job.module if job.file is None else Path(job.file).name
        raise NotLoadedError(
            f"{where}:{job.function} cannot be loaded in a new process: {reason} (output: {place / OUTPUT})"
        )
    return Failure(job.method, job.seed, reason, place / OUTPUT, _tail(place / OUTPUT))


class _EpochReader:
    """Reads the epochs of a run from its file, as the run adds them."""

    def __init__(self, job: child.Job, path: Path, watch: Watch) -> None:
        self.job, self.path, self.watch = job, path, watch
        self.read = path.stat().st_size if path.exists() else 0
        self.seconds: dict[int, float] = {}  # by epoch

    def look(self) -> None:
        """Report the epochs that were added since the last look."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            row = read_row(line)
            if row is None:
                continue
            reported = row["epoch"] in self.seconds
            self.seconds[row["epoch"]] = row["seconds"]
            if reported:
                continue
            place = (row["epoch"], row["epochs"], row["kept"], row["kept"], row["total"])
            self.watch(
                Tick(self.job.method, self.job.seed, *place, row["loss"], sum(self.seconds.values()), row["saving"])
            )


def _run_process(job: Path, output: IO[bytes], epochs: _EpochReader) -> int:
    """Start the process of a job, wait for it, and end it when this one is interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", START, str(job)],
        stdin=subprocess.PIPE,  # closes when this process is gone; the other process then ends too
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches it through this process alone
    )
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(LOOK_EVERY)
                epochs.look()
                return code
            epochs.look()
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and the processes it has started: ask first, then kill."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    if process.poll() is None:
        _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    else:
        process.terminate()


def _reason(place: Path, code: int) -> str:
    """Why a run failed, in one line."""
    path = place / child.FAILURE
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    if code < 0:
        name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
        return f"the process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"the process ended with exit code {code} before the function returned"


def _tail(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, TAIL)).rstrip("\n")
