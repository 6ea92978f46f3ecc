"""The page of one run: what was saved, and the sample explorer. It can hold a million samples.

The page carries its numbers as one deflated block of bytes, column after column; its script unpacks and draws them.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records import title
from .block import FEW_STEPS, STEPS, TAIL, narrow_integers, pack, quantise, scale_of, tail_steps
from .charts import as_json
from .distribution import Counts, bin_scores
from .numbers import percent
from .parts import digest, read_part

LISTED = 60  # samples of a list that are shown at a time
PER_LABEL = 200  # suspected samples that are kept for the lists of single labels, over all labels
TRAJECTORIES = 1_500_000  # bytes of scores by epoch on the page, at most; beyond it only some samples have them
EXHIBITS = 2_500_000  # characters of pictures, texts and sounds on the page, at most
NEVER_LEARNED, NEVER_NEEDED, LEARNED = 1, 2, 4
Columns = Mapping[str, NDArray[Any]]
COLUMNS = ("mean", "variability", "suspicion", "times_trained", "forgetting_events")


class EpochRow(NamedTuple):
    """One epoch: how many samples full data has, the plan keeps, and were trained on; the noise factor where known."""

    epoch: int
    total: int
    kept: int
    seen: int
    noise: float | None


@dataclass(frozen=True)
class Dynamics:
    """What each sample did over the epochs of a history."""

    epochs: Sequence[int]
    thresholds: Sequence[float]  # per epoch: a sample with a score below this is known
    columns: Columns  # those of COLUMNS
    never_learned: NDArray[np.bool_]
    never_needed: NDArray[np.bool_]
    learned: NDArray[np.bool_]
    codes: Sequence[NDArray[np.uint8]]  # per epoch, a code per sample; 0: not trained
    values: Sequence[NDArray[np.float32]]  # per epoch, the score of each of the 256 codes


@dataclass(frozen=True)
class RunView:
    """What the page shows; ``dynamics`` is None where no history was kept, ``show`` turns an index into HTML."""

    title: str
    method: str
    size: int
    epochs: Sequence[EpochRow]
    scores: NDArray[np.float32]
    dynamics: Dynamics | None = None
    label_names: Sequence[str] = ()
    label_codes: NDArray[np.integer] | None = None
    wanted: NDArray[np.int64] | None = None
    show: Callable[[int], str] | None = None


class SampleList(NamedTuple):
    """Samples that have all bits of ``flags`` and a number in ``column``, the highest (or lowest) first."""

    key: str
    name: str
    about: str
    column: str
    highest: bool
    flags: int = 0


LISTS = (
    SampleList(
        "suspected",
        "Suspected labels",
        "look at these labels first: the highest scores over the epochs",
        "suspicion",
        True,
    ),
    SampleList(
        "never-learned", "Never learned", "known in no epoch; the highest mean score first", "mean", True, NEVER_LEARNED
    ),
    SampleList(
        "forgotten",
        "Forgotten",
        "known, and later not known; the most often forgotten first",
        "forgetting_events",
        True,
    ),
    SampleList(
        "useful",
        "Most useful",
        "not known at first or in between, known at the end; the scores that changed most first",
        "variability",
        True,
        LEARNED,
    ),
    SampleList(
        "never-needed",
        "Never needed",
        "known whenever they were trained; the lowest mean score first",
        "mean",
        False,
        NEVER_NEEDED,
    ),
)
WITHOUT_HISTORY = (
    SampleList("highest", "Highest last score", "the hardest samples when they were last trained", "score", True),
    SampleList("lowest", "Lowest last score", "the easiest samples when they were last trained", "score", False),
)


def write(run: RunView, path: str | os.PathLike[str]) -> None:
    """Write the page to ``path``; a missing folder is made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(run), encoding="utf-8")


def page(run: RunView) -> str:
    """The page as HTML."""
    columns, about = _columns(run)
    exhibits = _exhibits(run, columns)
    block, layout = pack(columns | _trajectories(run, columns, [*exhibits]))
    data = {
        "size": run.size,
        "layout": layout,
        "about": about,
        "labels": list(run.label_names),
        "lists": [sample_list._asdict() for sample_list in _lists(run)],
        "listed": LISTED,
        "tail": TAIL,
        "epochs": [row._asdict() for row in run.epochs],
        "distribution": bin_scores(*_score_counts(run)),
        "exhibits": exhibits,
        **_history(run),
    }
    style, script = read_part("page.css", "explorer.css"), read_part("chart.js", "explorer.js")
    return Template(read_part("explorer.html")).substitute(
        title=html.escape(run.title),
        lede=html.escape(_lede(run)),
        notes=_notes(run),
        cards=_cards(run),
        data=as_json(data),
        block=block,
        style=style,
        style_hash=digest(style),
        script=script,
        script_hash=digest(script),
    )


# -- headline and notes ------------------------------------------------------------------------------------------------


def _lede(run: RunView) -> str:
    trained = f"{len(run.epochs)} epochs" if len(run.epochs) != 1 else "one epoch"
    return f"{title(run.method)}, {run.size:,} samples, {trained} trained so far."


def _notes(run: RunView) -> str:
    if run.dynamics is not None:
        return ""
    return (
        '<p class="note" role="note">This run kept no history, so only the last score of each sample is known. '
        "<code>InfoBatch(..., history=True)</code> adds the map of all samples, suspected labels, samples that were "
        "never learned, forgotten or never needed, and each sample’s scores over the epochs, for one byte per sample "
        "and epoch.</p>"
    )


def _cards(run: RunView) -> str:
    total, kept = (sum(getattr(row, name) for row in run.epochs) for name in ("total", "kept"))
    cards = [("saved", percent(1 - kept / total) if total else "–", "fewer samples", f"{total - kept:,} of {total:,}")]
    noise = [row.noise for row in run.epochs if row.noise is not None]
    if noise:
        mean = sum(noise) / len(noise)
        cards.append(("noise", f"{mean:.2f}", "noise factor", f"as if batches were {mean:.2f} times smaller"))
    if (dynamics := run.dynamics) is not None:
        for what, flags, words in (
            ("never needed", dynamics.never_needed, "known in every epoch they were trained in"),
            ("never learned", dynamics.never_learned, "known in no epoch"),
        ):
            count = int(flags.sum())
            cards.append((what, f"{count:,}", what, f"{percent(count / run.size)} of the samples: {words}"))
    return "\n".join(
        f'<article class="card"><p class="big">{big} <small>{small}</small></p><p class="soft">{soft}</p></article>'
        for _, big, small, soft in cards
    )


# -- the numbers -------------------------------------------------------------------------------------------------------


def _lists(run: RunView) -> tuple[SampleList, ...]:
    return LISTS if run.dynamics is not None else WITHOUT_HISTORY


def _columns(run: RunView) -> tuple[dict[str, NDArray[Any]], dict[str, dict[str, float]]]:
    """(columns of small whole numbers, what turns them back into the numbers they stand for)."""
    columns: dict[str, NDArray[Any]] = {}
    about: dict[str, dict[str, float]] = {}
    dynamics = run.dynamics
    scale = scale_of(run.scores if dynamics is None else dynamics.columns["mean"])
    columns["score"], about["score"] = quantise(run.scores, scale, STEPS if dynamics is None else FEW_STEPS)
    if dynamics is not None:
        for name in ("mean", "variability"):
            columns[name], about[name] = quantise(dynamics.columns[name], scale)
        columns["suspicion"] = tail_steps(dynamics.columns["suspicion"])
        for name in ("times_trained", "forgetting_events"):
            columns[name] = narrow_integers(dynamics.columns[name])
        flags = NEVER_LEARNED * dynamics.never_learned + NEVER_NEEDED * dynamics.never_needed
        columns["flags"] = (flags + LEARNED * dynamics.learned).astype(np.uint8)
    if run.label_codes is not None:
        columns["label"] = narrow_integers(run.label_codes)
    return columns, about


def take_samples(sample_list: SampleList, columns: Columns, rows: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """The first ``count`` samples of a list among those that ``rows`` marks: the same as the page's script takes."""
    keys = columns[sample_list.column].astype(np.int64)
    within = rows & (keys > 0)
    if sample_list.flags:
        within &= (columns["flags"] & sample_list.flags) == sample_list.flags
    indices = np.flatnonzero(within)
    order = np.argsort(-keys[indices] if sample_list.highest else keys[indices], kind="stable")
    return indices[order[:count]]


def _samples_to_show(run: RunView, columns: Columns) -> list[int]:
    """The samples with a picture or text: those asked for, then those of the lists in turn, then some per label."""
    every = np.ones(run.size, bool)
    lists = [take_samples(sample_list, columns, every, LISTED).tolist() for sample_list in _lists(run)]
    order = [] if run.wanted is None else run.wanted.tolist()
    order += [row[k] for k in range(LISTED) for row in lists if k < len(row)]
    if run.label_codes is not None and len(run.label_names) <= PER_LABEL:
        each = PER_LABEL // len(run.label_names)
        for code in range(len(run.label_names)):
            order += take_samples(_lists(run)[0], columns, run.label_codes == code, each).tolist()
    return list(dict.fromkeys(order))


def _exhibits(run: RunView, columns: Columns) -> dict[int, str | None]:
    """The samples as HTML, by index, as many as keep the page small; None where only the scores are shown."""
    exhibits: dict[int, str | None] = {}
    room = EXHIBITS
    for index in _samples_to_show(run, columns):
        shown = None if run.show is None or room <= 0 else run.show(index)
        exhibits[index] = shown
        room -= len(shown or "")
    return exhibits


def _trajectories(run: RunView, columns: Columns, shown: Sequence[int]) -> dict[str, NDArray[Any]]:
    """The codes of every epoch, for all samples or for as many as keep the page small: ``shown``, then random ones."""
    dynamics = run.dynamics
    if dynamics is None:
        return {}
    count = min(run.size, max(TRAJECTORIES // len(dynamics.epochs), len(shown)))
    rows = np.arange(run.size)
    if count < run.size:
        rest = np.setdiff1d(np.random.default_rng(0).choice(run.size, count, replace=False), shown)
        rows = np.sort(np.concatenate([np.asarray(shown, np.int64), rest[: count - len(shown)]]))
    codes = np.stack([codes[rows] for codes in dynamics.codes])
    followed = {} if count == run.size else {"followed": rows.astype(np.uint32)}
    return {**followed, "codes": codes.reshape(-1)}


def _history(run: RunView) -> dict[str, Any]:
    dynamics = run.dynamics
    if dynamics is None:
        return {"thresholds": [], "known": []}
    tables = [np.where(np.isnan(values), 0, values).tolist() for values in dynamics.values]
    kinds = list({str(table[-1]): table for table in tables}.values())
    return {
        "thresholds": list(dynamics.thresholds),
        "known": list(dynamics.epochs),
        "values": kinds,
        "kind": [kinds.index(table) for table in tables],
    }


def _score_counts(run: RunView) -> tuple[list[int], list[Counts]]:
    """(epochs, the scores of the samples trained in each); without a history, the last epoch and the last scores."""
    if run.dynamics is None:
        known = run.scores[np.isfinite(run.scores)].astype(np.float64)
        return [run.epochs[-1].epoch if run.epochs else 0], [(known, np.ones(len(known)))]
    parts = []
    for codes, values in zip(run.dynamics.codes, run.dynamics.values, strict=True):
        known = np.isfinite(values)
        parts.append((values[known].astype(np.float64), np.bincount(codes, minlength=256)[known].astype(np.float64)))
    return list(run.dynamics.epochs), parts
