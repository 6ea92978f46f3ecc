"""The numbers of the page's charts, as JSON that the page carries and its script draws."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records import SCORE_EDGES, RunRecord
from .outcome import Band, Outcome

COLOURS = 6  # besides full data's grey; further methods repeat them with dashed lines


def chart_data(outcomes: Sequence[Outcome], margin: float, digits: int) -> dict[str, Any]:
    """The numbers of all charts."""
    inside = [outcome.number for outcome in outcomes if has_inside(outcome)]
    return {
        "metric": outcomes[0].runs[0].metric,
        "margin": margin,
        "digits": digits,
        "edges": SCORE_EDGES,
        # The method whose scores are shown first: one that prunes, if there is one.
        "picked": next((number for number in inside if number), 0 if inside else None),
        "methods": [_method_data(outcome) for outcome in outcomes],
    }


def _method_data(outcome: Outcome) -> dict[str, Any]:
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
    """The share of the scores in each bin, per epoch, as the mean of the seeds; None where no run has scores."""
    counts = [np.array(run.histograms, dtype=np.float64) for run in runs if run.histograms]
    if not counts:
        return None
    epochs = min(map(len, counts))
    shares = [count[:epochs] / np.maximum(count[:epochs].sum(axis=1, keepdims=True), 1) for count in counts]
    means: list[list[float]] = np.mean(shares, axis=0).round(6).tolist()
    return means


def as_json(data: Any) -> str:
    """JSON that can stand in a page: numbers that are not finite are null, and no text can end the script element."""
    text = json.dumps(_replace_not_finite(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _replace_not_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_not_finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_not_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def has_inside(outcome: Outcome) -> bool:
    """Whether the records of this method hold scores or samples to show."""
    return any(run.histograms or run.hardest or run.most_pruned for run in outcome.runs)


def colour(outcome: Outcome) -> int:
    """The number of the method's colour; 0 is full data's grey."""
    return 1 + (outcome.number - 1) % COLOURS if outcome.number else 0
