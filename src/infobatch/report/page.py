"""The report: one HTML page that needs no network, for small and large screens, light and dark.

Headline and tables are plain HTML; a small script draws the charts from the JSON that the page carries. The page's
frame, style and script lie beside this file.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from string import Template
from typing import Any

import numpy as np

from ..records import RunRecord
from .album import Album, Pictures, list_hardest, list_most_pruned
from .charts import as_json, chart_data, colour, has_inside
from .numbers import percent
from .outcome import Outcome
from .parts import digest, read_part
from .results import Note, Results, name_seeds, place
from .statistics import FEWEST, digits_of

TITLE = "Trained on fewer samples"  # of the page where records do not name their data
# The chart of the noise factor, shown where records hold it.
NOISE = """<figure>
<figcaption><b>Noise factor</b> <span>per epoch; 1.2: as if batches were 1.2 times smaller</span></figcaption>
<div class="chart" id="noise"></div>
</figure>"""


def write(results: Results, path: str | Path, *, pictures: Pictures | None = None, title: str | None = None) -> None:
    """Write the page of a comparison to ``path``.

    ``pictures`` holds, for the indices of samples, an image of height × width × channels bytes and a caption. Without
    a ``title`` the page is named after the data.
    """
    if title is None:
        data = sorted({str(run.recipe["dataset"]) for run in results.runs if "dataset" in run.recipe})
        title = f"infobatch on {', '.join(data)}" if data else TITLE
    Path(path).write_text(_page(results, Album(pictures or {}), title), encoding="utf-8")


def _page(results: Results, album: Album, title: str) -> str:
    outcomes, margin, digits = results.methods, results.margin, results.digits
    frame, style, script = read_part("page.html"), read_part("page.css"), read_part("chart.js", "page.js")
    metric, notes = results.metric, list(results.notes())
    return Template(frame).substitute(
        title=_text(title),
        lede=_text(_lede(outcomes, margin)),
        metric=_text(metric[:1].upper() + metric[1:]),
        warnings="\n".join(_note(note) for note in notes if note.loud),
        notes="\n".join(_note(note) for note in notes if not note.loud),
        cards="\n".join(_card(outcome, margin, digits) for outcome in outcomes if outcome.method != "full"),
        spread=_describe_curves(outcomes),
        results=_results_table(outcomes, margin, digits) + _further_tables(results),
        cost=_cost_table(outcomes),
        noise=NOISE if _has_noise(outcomes) else "",
        inside=_scores_and_samples(outcomes, album),
        made=_provenance(results.runs),
        data=as_json(chart_data(outcomes, margin, digits)),
        style=style,
        style_hash=digest(style),
        script=script,
        script_hash=digest(script),
    )


# -- headline and notes ------------------------------------------------------------------------------------------------


def _lede(outcomes: Sequence[Outcome], margin: float) -> str:
    runs = [run for outcome in outcomes for run in outcome.runs]
    recipe, first = runs[0].recipe, runs[0]
    epochs = sorted({len(run.kept) for run in runs})
    facts = [str(recipe[key]) for key in ("dataset", "model") if key in recipe]
    facts += [f"{first.total:,} samples", f"{' to '.join(map(str, epochs[:: len(epochs) - 1 or 1]))} epochs"]
    better = "higher" if first.higher_is_better else "lower"
    return (
        f"{', '.join(facts)}. Judged by {first.metric} ({better} is better) at the end of training; margin {margin:g}."
    )


def _note(note: Note) -> str:
    return f'<p class="note{" loud" if note.loud else ""}" role="note">{_text(note.text)}</p>'


def _card(outcome: Outcome, margin: float, digits: int) -> str:
    """The headline of a method: saved, difference, verdict."""
    change = outcome.difference
    metric = _text(outcome.runs[0].metric)
    if change is None:
        words = '<p class="soft">no difference to full data</p>'
    else:
        seeds = f"{len(outcome.pairs)} paired seeds" if len(outcome.pairs) > 1 else "one seed, no result"
        words = f"<p>{_gain(change.mean, digits, outcome.runs[0].higher_is_better)} in {metric}</p>"
        words += f'<p class="soft">{_interval(outcome, digits)}{seeds}</p>'
    noise = ""
    if outcome.noise is not None and outcome.noise >= 1.005:  # not for full data, whose factor is 1
        noise = f'<p class="soft">as if batches were {outcome.noise:.2f} times smaller</p>'
    return (
        f'<article class="card"><h2>{_key(outcome)}{_text(outcome.name)}</h2>'
        f'<p class="big">{percent(outcome.saved)} <small>fewer samples</small></p>{noise}{words}'
        f"<p>{_verdict(outcome, margin)}</p></article>"
    )


def _gain(difference: float, digits: int, higher_is_better: bool) -> str:
    """A difference as a number; where a lower value of the metric is better, followed by better or worse.

    >>> _gain(0.19, 2, True), _gain(-0.01, 3, False)
    ('<b>+0.19</b>', '<b>0.010</b> worse')
    """
    if higher_is_better:
        return f"<b>{_number(difference, f'+.{digits}f')}</b>"
    return f"<b>{abs(difference):.{digits}f}</b> {'better' if difference >= 0 else 'worse'}"


def _interval(outcome: Outcome, digits: int) -> str:
    if outcome.difference is None or len(outcome.pairs) < 2:
        return ""
    low, high = (_number(end, f"+.{digits}f") for end in outcome.difference.interval)
    return f"95 %: {low} to {high}, "


def _verdict(outcome: Outcome, margin: float) -> str:
    """The verdict as a badge."""
    if outcome.diverged:
        return f'<span class="verdict bad">✗ {name_seeds(outcome.diverged)} diverged</span>'
    if outcome.difference is None:
        return '<span class="verdict open">no verdict</span>'
    text = outcome.difference.verdict(margin)
    kind, sign = {"lossless": ("good", "✓"), "worse": ("bad", "✗")}.get(text.split()[0], ("open", "?"))
    return f'<span class="verdict {kind}">{sign} {_text(text)}</span>'


# -- the tables --------------------------------------------------------------------------------------------------------


def _results_table(outcomes: Sequence[Outcome], margin: float, digits: int) -> str:
    metric, several = outcomes[0].runs[0].metric, _has_several_seeds(outcomes)
    heads = [f"{metric}, mean ± sd", "difference, 95 % interval"] if several else [metric, "difference"]
    rows = []
    for outcome in outcomes:
        values = outcome.values
        verdict = "" if outcome.method == "full" else _verdict(outcome, margin)
        rows.append((outcome, [str(len(values)), _spread(values, digits), _difference(outcome, digits), verdict]))
    about = "Differences are taken seed by seed against full data; positive is better."
    return _table("Results", ["seeds", *heads, "verdict"], rows, about)


def _further_tables(results: Results) -> str:
    """A table for each further measure that was taken after training; empty where there is none."""
    parts = []
    for outcomes in results.further:
        rows = []
        for outcome in outcomes:
            values = outcome.values
            digits = digits_of(abs(mean(values)) / 100) if all(map(math.isfinite, values)) else 2
            rows.append((outcome, [str(len(values)), _spread(values, digits), _difference(outcome, digits)]))
        metric = outcomes[0].runs[0].metric
        better = "higher" if outcomes[0].runs[0].higher_is_better else "lower"
        about = f"Also measured after training: {metric} ({better} is better). A positive difference is better."
        parts.append(_table("Also measured", ["seeds", metric, "difference, 95 % interval"], rows, about))
    return "".join(parts)


def _cost_table(outcomes: Sequence[Outcome]) -> str:
    noisy = _has_noise(outcomes)
    heads = ["samples trained on", "saved", *["noise"] * noisy]
    heads += ["seconds", "ideal speed-up", "realised speed-up", "realised ÷ ideal"]
    rows = []
    for outcome in outcomes:
        samples, seconds = (
            mean(getattr(run, name) for run in outcome.compared) for name in ("samples", "seconds_in_all")
        )
        cells = [f"{samples:,.0f}", percent(outcome.saved)]
        if noisy:
            cells.append("" if outcome.noise is None else f"{outcome.noise:.2f}")
        speed = ["" if ratio is None else f"{ratio:.2f} ×" for ratio in (outcome.ideal, outcome.realised)]
        speed.append(_format_range(outcome.efficiencies) if outcome.efficiencies else "")
        rows.append((outcome, [*cells, f"{seconds:,.1f}", *speed]))
    over = "Samples and seconds are means of the seeds, speed-ups medians of the pairs with full data [least, most]. "
    about = "Ideal: if time depended on the number of samples alone. Realised: as measured, "
    about += "with the time to select a subset."
    if noisy:
        most = max(outcome.noise or 1 for outcome in outcomes)
        about += f" Noise, mean of the epochs: {most:.2f} is as if batches were {most:.2f} times smaller."
    return _table("Cost", heads, rows, over * _has_several_seeds(outcomes) + about)


def _table(label: str, heads: Sequence[str], rows: Sequence[tuple[Outcome, Sequence[str]]], about: str) -> str:
    """A table with a row per method and cells of HTML. A table wider than the page scrolls in its own box."""
    top = "".join(f'<th scope="col">{_text(head)}</th>' for head in ["method", *heads])
    body = ""
    for outcome, cells in rows:
        name = _text(outcome.name).replace(":", ":<wbr>").replace(",", ",<wbr>")  # places where a line may end
        body += f'<tr><th scope="row">{_key(outcome)}{name}</th>'
        body += "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    return (
        f'<div class="box" role="region" aria-label="{label}" tabindex="0"><table class="results">'
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody></table></div>"
        f'<p class="about">{_text(about)}</p>'
    )


def _difference(outcome: Outcome, digits: int) -> str:
    if (change := outcome.difference) is None:
        return ""
    middle, *ends = (_number(value, f"+.{digits}f") for value in (change.mean, *change.interval))
    return f"{middle} [{', '.join(ends)}]" if len(outcome.pairs) > 1 else middle


def _format_range(values: Sequence[float]) -> str:
    """The median [least, most].

    >>> _format_range([1.0]), _format_range([0.9, 1.0, 1.2])
    ('1.00', '1.00 [0.90, 1.20]')
    """
    text = f"{median(values):.2f}"
    return text if len(values) == 1 else f"{text} [{min(values):.2f}, {max(values):.2f}]"


def _spread(values: Sequence[float], digits: int) -> str:
    """Mean ± sample standard deviation; one value stands alone, and a value that is not finite gives "not a number".

    >>> _spread([0.25], 2), _spread([1.0, 2.0, 3.0], 2), _spread([1.0, float("nan")], 2)
    ('0.25', '2.00 ± 1.00', 'not a number')
    """
    if not all(map(math.isfinite, values)):
        return "not a number"
    text = _number(mean(values), f".{digits}f")
    return text if len(values) == 1 else f"{text} ± {np.std(values, ddof=1):.{digits}f}"


def _provenance(runs: Sequence[RunRecord]) -> str:
    """Command, environment and recipe; where runs differ, every value with the number of runs that had it."""
    commands = dict.fromkeys(str(run.environment["command"]) for run in runs if "command" in run.environment)
    blocks = "".join(f'<pre class="box" tabindex="0"><code>{_text(command)}</code></pre>' for command in commands)
    overhead = sum(run.overhead for run in runs) / sum(run.seconds for run in runs)
    environment = [
        *_facts([place(run) for run in runs]),
        ("time in the library", f"{100 * overhead:.2g} % of training"),
    ]
    return blocks + (
        f'<div class="pair">{_sheet("Environment", environment)}'
        f"{_sheet('Recipe', list(_facts([run.recipe for run in runs])))}</div>"
    )


def _facts(mappings: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for key in dict.fromkeys(key for mapping in mappings for key in mapping):
        counts = Counter(str(mapping.get(key, "not recorded")) for mapping in mappings)
        same = len(counts) == 1
        yield str(key), "; ".join(value if same else f"{value} ({count} runs)" for value, count in counts.items())


def _sheet(heading: str, facts: Sequence[tuple[str, str]]) -> str:
    if not facts:
        return ""
    rows = "".join(f'<tr><th scope="row">{_text(key)}</th><td>{_text(value)}</td></tr>' for key, value in facts)
    return f'<div><h3>{heading}</h3><div class="box"><table class="facts">{rows}</table></div></div>'


# -- scores and samples ------------------------------------------------------------------------------------------------


def _scores_and_samples(outcomes: Sequence[Outcome], album: Album) -> str:
    """The chart of the scores and the samples, for one method at a time; without a script, the samples of all."""
    parts = [_samples(outcome, album) for outcome in outcomes if has_inside(outcome)]
    if not parts:
        return ""
    return (
        '<section aria-labelledby="inside"><h2 id="inside">Scores and samples</h2>'
        '<div class="picker" role="group" aria-label="Method whose scores and samples are shown"></div>'
        "<figure data-drawn hidden><figcaption><b>Scores over the epochs</b> <span>share of the samples at each score, "
        'a sample’s last loss</span></figcaption><div class="chart" id="scores"></div></figure>\n'
        f"{''.join(parts)}</section>"
    )


def _samples(outcome: Outcome, album: Album) -> str:
    lists = [
        ("Hardest", list_hardest(outcome), "score {:.3g}"),
        ("Most pruned", list_most_pruned(outcome), "left out {:.3g} ×"),
    ]
    galleries = "\n".join(
        f"<div><h3>{kind} samples of {_text(outcome.name)}</h3>{album.gallery(samples, len(outcome.runs), form)}</div>"
        for kind, samples, form in lists
        if samples
    )
    return f'<div class="pair" data-samples="{outcome.number}">{galleries}</div>\n'


# -- small things ------------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return html.escape(str(value))


def _describe_curves(outcomes: Sequence[Outcome]) -> str:
    """Whether a curve is one seed or a mean, and whether it has an interval."""
    seeds = max(len(outcome.runs) for outcome in outcomes)
    if seeds < FEWEST:
        return "one seed" if seeds == 1 else "mean of the seeds"
    return "mean of the seeds, shaded: its 95 % interval"


def _has_several_seeds(outcomes: Sequence[Outcome]) -> bool:
    return any(len(outcome.runs) > 1 for outcome in outcomes)


def _has_noise(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.noise is not None for outcome in outcomes)


def _key(outcome: Outcome) -> str:
    return f'<span class="key c{colour(outcome)}"></span>'


def _number(value: float, form: str) -> str:
    """A number as text, with a real minus sign (−) and no sign before zero.

    >>> _number(-0.123, "+.2f"), _number(-0.001, "+.2f")
    ('−0.12', '0.00')
    """
    text = format(value, form)
    return text.replace("-", "−") if text.strip("+-0.") else text.lstrip("+-")
