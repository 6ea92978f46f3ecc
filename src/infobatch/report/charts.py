"""What the page's script draws: the numbers of its charts, as JSON that the page carries."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records import SCORE_EDGES, RunRecord
from .outcome import Band, Outcome

COLOURS = 6  # besides full data's grey; further methods have them again, dashed


def chart_data(found: Sequence[Outcome], margin: float, digits: int) -> dict[str, Any]:
    """All that the charts show."""
    inside = [outcome.number for outcome in found if has_inside(outcome)]
    return {
        "metric": found[0].runs[0].metric,
        "margin": margin,
        "digits": digits,
        "edges": SCORE_EDGES,
        # Rather a method that prunes than full data.
        "picked": next((number for number in inside if number), 0 if inside else None),
        "methods": [_drawn(outcome) for outcome in found],
    }


def _drawn(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "number": outcome.number,
        "colour": colour(outcome),
        "dash": max(outcome.number - 1, 0) // COLOURS % 3,
        "samples": outcome.samples,
        "value": _curve(outcome.band(lambda run: run.values)),
        "loss": _curve(outcome.band(lambda run: run.losses)),
        "kept": _curve(outcome.band(lambda run: [kept / run.total for kept in run.kept])),
        "noise": None if outcome.noise_band is None else _curve(outcome.noise_band),
        "difference": _difference(outcome),
        "inside": has_inside(outcome),
        "scores": _scores(outcome.runs),
    }


def _curve(band: Band) -> dict[str, Any]:
    return {"mean": band.mean, "reach": band.reach}


def _difference(outcome: Outcome) -> dict[str, Any] | None:
    change = outcome.difference
    if change is None:
        return None
    reach = change.interval[1] - change.mean if len(change.values) > 1 else None
    seeds = [pair.full.seed for pair in outcome.pairs]
    return {"seeds": seeds, "values": change.values, "mean": change.mean, "reach": reach}


def _scores(runs: Sequence[RunRecord]) -> list[list[float]] | None:
    """Per epoch the share of the scores in each bin, mean of the seeds; None where no run has any."""
    counts = [np.array(run.histograms, dtype=np.float64) for run in runs if run.histograms]
    if not counts:
        return None
    epochs = min(map(len, counts))
    shares = [count[:epochs] / np.maximum(count[:epochs].sum(axis=1, keepdims=True), 1) for count in counts]
    found: list[list[float]] = np.mean(shares, axis=0).round(6).tolist()
    return found


def as_json(data: Any) -> str:
    """JSON that can stand in a page: what is not finite is null, and nothing in it can end the script element."""
    text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def has_inside(outcome: Outcome) -> bool:
    """Whether its scores or samples can be shown."""
    return any(run.histograms or run.hardest or run.most_pruned for run in outcome.runs)


def colour(outcome: Outcome) -> int:
    """The number of its colour; 0 is full data's grey."""
    return 1 + (outcome.number - 1) % COLOURS if outcome.number else 0
