from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from infobatch.lab.data import fashion
from infobatch.records import SCORE_EDGES, Measure, RunRecord
from infobatch.report import page
from infobatch.report.results import Results
from report.browser import CHROMIUM, DRIVER, MISSING, Browser, browser
from report.runs import COMMAND, run, runs

pytestmark = pytest.mark.slow  # a real browser

EVIL = """<img src=x onerror="document.title='owned'"> & '"</script>${data}"""


class Reader(HTMLParser):
    """The words and elements of the page that a reader without a script sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open = tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        {"script": self.scripts, "style": self.styles}.get(self.open, self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(folder: Path, records: list[RunRecord], *, margin: float = 0.5, **options: Any) -> Reader:
    page.write(Results.of(records, margin), folder / "page.html", **options)
    return Reader((folder / "page.html").read_text(encoding="utf-8"))


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def cells(reader: Reader) -> str:
    """The words, with a bar between cells and other elements."""
    return "|".join(word.strip() for word in reader.words if word.strip())


# -- the words ---------------------------------------------------------------------------------------------------------


def test_headline_and_tables_stand_in_the_page_itself(tmp_path: Path) -> None:
    records = runs()
    reader = read(tmp_path, records)
    full, random = ([r for r in records if r.method == method] for method in ("full", "random"))
    values = np.array([b.value - a.value for a, b in zip(full, random, strict=True)])
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    saved = 1 - np.mean([b.samples / a.samples for a, b in zip(full, random, strict=True)])
    realised = [a.seconds / b.seconds for a, b in zip(full, random, strict=True)]
    ideal = [a.samples / b.samples for a, b in zip(full, random, strict=True)]
    ratio = np.divide(realised, ideal)
    noise = np.mean([r.noise for r in random])
    card = f"Random|{100 * saved:.1f} %|fewer samples|as if batches were {noise:.2f} times smaller|"
    card += f"{signed(values.mean())}|in test accuracy, %|"
    card += f"95 %: {signed(low)} to {signed(high)}, 5 paired seeds|✗ worse by more than 0.5"
    assert card in cells(reader)
    row = f"{np.mean([r.value for r in random]):.2f} ± {np.std([r.value for r in random], ddof=1):.2f}|"
    row += f"{signed(values.mean())} [{signed(low)}, {signed(high)}]|✗ worse by more than 0.5"
    assert f"Random|5|{row}" in cells(reader)
    cost = f"{np.mean([r.samples for r in random]):,.0f}|{100 * saved:.1f} %|{noise:.2f}|"
    cost += f"{np.mean([r.seconds for r in random]):.1f}|"
    cost += f"{np.median(ideal):.2f} ×|{np.median(realised):.2f} ×|"
    assert f"Random|{cost}{np.median(ratio):.2f} [{ratio.min():.2f}, {ratio.max():.2f}]" in cells(reader)
    assert (
        "cifar10, resnet-compact, 10,000 samples, 12 epochs. Judged by test accuracy, % (higher is better)"
        in reader.text
    )
    assert COMMAND in reader.text
    assert "torch|2.13.0+cpu|" in cells(reader)
    assert reader.text.count("there is no correction for comparing 3 methods") == 1
    assert len([a for a in reader.attributes("p") if a.get("role") == "note"]) == 1  # nothing else to warn of
    most = np.mean([r.noise for r in records if r.method == "infobatch-quantile"])
    assert f"Noise, mean of the epochs: {most:.2f} is as if batches were {most:.2f} times smaller." in reader.text


def test_old_records_without_the_noise_factor_show_nothing_of_it(tmp_path: Path) -> None:
    old = [replace(record, noise=()) for record in runs()]
    reader = read(tmp_path, old)
    assert "noise" not in reader.text.lower()
    assert "batches" not in reader.text
    assert [m["noise"] for m in reader.data["methods"]] == [None] * 4
    assert "noise" not in [a.get("id") for a in reader.attributes("div")]
    # Where one method has it, the others' cells are empty.
    mixed = [replace(record, noise=record.noise if record.method == "random" else ()) for record in runs()]
    reader = read(tmp_path, mixed)
    assert [m["noise"] is None for m in reader.data["methods"]] == [True, True, False, True]
    assert "|saved|noise|seconds|" in cells(reader)


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [
        ((0.1, 0.0, -0.1), "✓ lossless within 0.5"),
        ((-2.0, -2.1, -1.9), "✗ worse by more than 0.5"),
        ((-0.5, -0.4, -0.6), "✗ worse by 0.50"),
        ((-0.2, -0.25, -0.21), "? within the margin, worse by 0.22"),
        ((1.0, -1.5, 0.2), "? undecided: more seeds"),
    ],
)
def test_the_verdict_is_that_of_the_interval(tmp_path: Path, shift: tuple[float, ...], verdict: str) -> None:
    full = runs(["full"], range(3))
    ours = [
        replace(r, method="infobatch", values=(*r.values[:-1], r.value + s)) for r, s in zip(full, shift, strict=True)
    ]
    reader = read(tmp_path, [*full, *ours])
    kinds = [a["class"] for a in reader.attributes("span") if "verdict" in (a.get("class") or "")]
    kind = {"✓": "good", "✗": "bad", "?": "open"}[verdict[0]]
    assert kinds == [f"verdict {kind}"] * 2
    assert cells(reader).split("|").count(verdict) == 2


def test_one_seed_is_no_result(tmp_path: Path) -> None:
    reader = read(tmp_path, runs(seeds=[0]))
    assert "One seed is a demonstration, not a result: a verdict needs 3 paired seeds, and 5 are better." in reader.text
    assert "95 %" not in reader.text
    assert "±" not in reader.text
    for word in ("lossless", "worse", "undecided"):
        assert word not in reader.text
    assert reader.text.count("too few seeds") == 2 * 3
    for method in reader.data["methods"]:
        assert method["value"]["reach"] is method["loss"]["reach"] is method["kept"]["reach"] is None
        assert method["difference"] is None or method["difference"]["reach"] is None


def test_a_method_with_one_seed_among_others_has_no_verdict(tmp_path: Path) -> None:
    reader = read(tmp_path, [*runs(["full", "infobatch"]), run("random", 0)])
    assert "one seed, no result|? too few seeds" in cells(reader)
    assert (
        "Random and full data do not both have seeds 1, 2, 3, 4: its figures are taken from the 1 shared" in reader.text
    )
    assert "One seed is a demonstration" not in reader.text


def test_further_measures_have_a_table_of_their_own(tmp_path: Path) -> None:
    def measured(record: RunRecord) -> RunRecord:
        better = 0.01 * record.seed + (0.1 if record.method == "infobatch" else 0)
        return replace(record, further=(Measure(f"error {EVIL}", 0.5 - better, False),))

    path = tmp_path / "page.html"
    page.write(Results.of([measured(record) for record in runs(["full", "infobatch"])], 0.5), path)
    assert f"Also measured after training: error {EVIL} (lower is better)" in Reader(path.read_text("utf-8")).text
    assert "+0.1000 [+0.1000, +0.1000]" in Reader(path.read_text("utf-8")).text
    page.write(Results.of(runs(), 0.5), path)
    assert "Also measured" not in Reader(path.read_text("utf-8")).text


def test_a_note_names_missing_runs(tmp_path: Path) -> None:
    lone = read(tmp_path, runs(["infobatch"]))
    assert "There is no run on full data" in lone.text
    assert "no verdict" in lone.text
    assert "There are only runs on full data" in read(tmp_path, runs(["full"])).text
    apart = read(tmp_path, [run("full", 0), run("infobatch", 1)])
    assert "InfoBatch shares no seed with full data" in apart.text


def test_a_note_names_diverged_runs_and_there_is_no_verdict(tmp_path: Path) -> None:
    records = [
        replace(r, values=(50.0,) * 11 + (math.nan,)) if r.seed == 3 and r.method == "random" else r for r in runs()
    ]
    reader = read(tmp_path, records)
    assert "Random: seed 3 ended without a finite metric" in reader.text
    assert "times smaller|no difference to full data|✗ seed 3 diverged" in cells(reader)
    assert "Random|5|not a number||".rstrip("|") in cells(reader)
    random = next(m for m in reader.data["methods"] if m["name"] == "Random")
    assert random["value"]["mean"][-1] is None
    assert random["value"]["mean"][0] is not None


def test_a_note_warns_of_times_that_cannot_be_trusted(tmp_path: Path) -> None:
    records = runs(["full", "infobatch"])
    assert "trust the times" not in read(tmp_path, records).text
    slow = replace(records[0], times=(9 * records[0].times[0], *records[0].times[1:]))
    assert re.search(r"The machine was busy: .* took \d+\.\d times as long", read(tmp_path, [slow, *records[1:]]).text)
    moved = replace(records[0], environment={**records[0].environment, "cpus": 64})
    reader = read(tmp_path, [moved, *records[1:]])
    assert "made in different environments" in reader.text
    assert "cpus|64 (1 runs); 2 (9 runs)" in cells(reader)


def test_a_small_margin_has_the_digits_to_be_seen(tmp_path: Path) -> None:
    lower = [
        replace(r, values=tuple(v / 1000 for v in r.values), metric="loss", higher_is_better=False) for r in runs()
    ]
    reader = read(tmp_path, lower, margin=0.002)
    card = r"Random\|24\.9 %\|fewer samples\|as if[^|]*\|0\.0011\|better in loss\|95 %: \+0\.0009 to \+0\.0014"
    assert re.search(card, cells(reader))
    assert "loss (lower is better) at the end of training; margin 0.002." in reader.text


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_a_margin_must_be_a_number_from_zero_on(tmp_path: Path, margin: float) -> None:
    with pytest.raises(ValueError, match="margin must be a number from 0 on, in the unit of the metric, got"):
        Results.of(runs(), margin)
    assert not list(tmp_path.iterdir())


# -- the data of the script --------------------------------------------------------------------------------------------


def test_the_curves_are_means_over_the_seeds_with_their_intervals(tmp_path: Path) -> None:
    records = runs()
    data = read(tmp_path, records).data
    assert [m["name"] for m in data["methods"]] == ["Full data", "InfoBatch", "Random", "InfoBatch, quantiles"]
    assert (data["margin"], data["metric"], data["picked"]) == (0.5, "test accuracy, %", 1)
    own = [r for r in records if r.method == "infobatch"]
    drawn = data["methods"][1]
    np.testing.assert_allclose(drawn["samples"], np.mean([np.cumsum(r.kept) for r in own], axis=0))
    for name, curves in [
        ("value", [r.values for r in own]),
        ("loss", [r.losses for r in own]),
        ("kept", [np.divide(r.kept, r.total) for r in own]),
        ("noise", [r.noise for r in own]),
    ]:
        np.testing.assert_allclose(drawn[name]["mean"], np.mean(curves, axis=0))
        reach = stats.t.ppf(0.975, 4) * stats.sem(np.array(curves), axis=0)
        np.testing.assert_allclose(drawn[name]["reach"], reach, rtol=1e-4, atol=1e-12)


def test_the_scores_are_shares_that_add_up(tmp_path: Path) -> None:
    records = runs(["full", "infobatch"])
    data = read(tmp_path, records).data
    shares = np.array(data["methods"][1]["scores"])
    assert shares.shape == (12, len(SCORE_EDGES) - 1)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-4)
    counts = np.mean([r.histograms for r in records if r.method == "infobatch"], axis=0)
    np.testing.assert_allclose(shares, counts / 10_000, atol=1e-5)
    np.testing.assert_allclose(data["edges"], SCORE_EDGES)


def test_records_without_scores_and_samples_leave_that_section_out(tmp_path: Path) -> None:
    bare = [replace(r, histograms=(), hardest=(), most_pruned=(), recipe={}, environment={}) for r in runs()]
    reader = read(tmp_path, bare)
    assert "Scores" not in reader.text
    assert "Recipe" not in reader.text
    assert reader.data["picked"] is None


def test_samples_with_pictures_show_them(tmp_path: Path) -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    reader = read(tmp_path, runs(["full", "infobatch"]), pictures={100: (image, "a bag"), 9999: (image, "unused")})
    [shown] = reader.attributes("img")
    assert shown["alt"] == "a bag"
    assert shown["src"].startswith("data:image/png;base64,")
    assert "sample 101" in reader.text


# -- one page, no network, nothing unescaped ---------------------------------------------------------------------------


def evil_records() -> list[RunRecord]:
    changes = {"metric": EVIL, "recipe": {EVIL: EVIL}, "environment": {"command": EVIL, EVIL: EVIL}}
    return [run(method, seed, **changes) for method in ("full", EVIL) for seed in (0, 1)]


def test_all_text_is_escaped(tmp_path: Path) -> None:
    picture = (np.zeros((2, 2, 1), np.uint8), EVIL)
    reader = read(tmp_path, evil_records(), title=EVIL, pictures={100: picture})
    assert [a["alt"] for a in reader.attributes("img")] == [EVIL]
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert len(reader.attributes("script")) == len(reader.scripts) == 2
    assert reader.data["methods"][1]["name"] == reader.data["metric"] == EVIL
    # Title, heading, caption, metric, method, command, recipe: as they are written, no more and no less.
    assert reader.text.count(EVIL) >= 12
    assert "&amp;" not in reader.text


def test_the_page_asks_for_nothing_and_allows_nothing_but_itself(tmp_path: Path) -> None:
    reader = read(tmp_path, runs())
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert not [a for a in reader.attributes("script") if "src" in a]
    assert [a["href"] for a in reader.attributes("link")] == ["data:,"]
    policy = next(a["content"] for a in reader.attributes("meta") if "http-equiv" in a)
    hashes = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (reader.styles[0], reader.scripts[1])
    ]
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    )
    assert not [a for _, a in reader.tags if "style" in a]  # the policy would refuse it


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_stand_out_from_their_background(dark: bool) -> None:
    style = resources.files("infobatch.report").joinpath("page.css").read_text(encoding="utf-8")
    colours = dict(
        re.findall(r"--([\w-]+): (#\w{6})", style.split("@media (prefers-color-scheme: dark)")[dark].split("* {")[0])
    )
    assert len(colours) == 19
    for ink in ("ink", "soft"):
        assert min(contrast(colours[ink], colours[paper]) for paper in ("paper", "card")) >= 4.5  # text: WCAG AA
    for kind in ("good", "bad", "open"):
        assert contrast(colours[kind], colours[f"{kind}-bg"]) >= 4.5
    for number in range(7):
        assert contrast(colours[f"c{number}"], colours["card"]) >= 3  # lines


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not (CHROMIUM and DRIVER):
        pytest.skip(MISSING)
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = fashion.load().train
    pictures = {i: (data.images[i][..., None], fashion.CLASSES[data.labels[i]]) for i in range(120)}
    path = tmp_path_factory.mktemp("page") / "page.html"
    page.write(Results.of(runs(), 0.5), path, pictures=pictures, title="Fashion-MNIST: four methods")
    return path


def curves(chromium: Browser, chart: str) -> list[str]:
    return [curve.get_attribute("data-method") for curve in chromium.all(f"#{chart} .curve")]


def tip(chromium: Browser, chart: str) -> str:
    return " ".join(chromium.find(f"#{chart} .tip").text.split())


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False), (360, True)])
def test_the_page_opens_without_complaint_and_fits(chromium: Browser, path: Path, width: int, dark: bool) -> None:
    chromium.open(path, width=width, dark=dark)
    assert chromium.run("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    for chart in ("value", "loss", "kept", "noise"):
        assert curves(chromium, chart) == ["Full data", "InfoBatch", "Random", "InfoBatch, quantiles"]
        assert len(chromium.all(f"#{chart} .band")) == 4
    assert len(chromium.all("#difference .whisker")) == 3
    assert len(chromium.all("#scores .cell")) > 100
    paper = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 100) == dark
    # No chart's text leaves its chart.
    assert (
        chromium.run(
            """return [...document.querySelectorAll(".chart text")].filter((text) => {
             const [a, b] = [text, text.ownerSVGElement].map((node) => node.getBoundingClientRect());
             return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
           }).map((text) => text.textContent)"""
        )
        == []
    )
    assert chromium.requests() == [path.as_uri()]
    assert chromium.complaints() == []


def test_the_noise_stands_beside_the_share_kept_and_old_pages_have_no_gap(
    chromium: Browser, path: Path, tmp_path: Path
) -> None:
    page.write(Results.of([replace(record, noise=()) for record in runs()], 0.5), tmp_path / "old.html")
    for place, pair in ((path, ("kept", "noise")), (tmp_path / "old.html", ("loss", "kept"))):
        chromium.open(place)
        left, right = (chromium.find(f"#{chart}").rect for chart in pair)
        assert left["y"] == right["y"]
        assert left["x"] < right["x"]
        assert left["width"] == right["width"]


def test_hover_tells_exact_values(chromium: Browser, path: Path) -> None:
    chromium.open(path)
    data = Reader(path.read_text(encoding="utf-8")).data["methods"]
    assert tip(chromium, "value") == ""
    chromium.hover("#value", 0.99, 0.3)
    value = data[0]["value"]
    words = f"epoch 12 Full data {value['mean'][-1]:.2f} ± {value['reach'][-1]:.2f} at 120 k"
    assert tip(chromium, "value").startswith(words)
    chromium.hover("#loss", 0.02, 0.5)
    assert f"InfoBatch {data[1]['loss']['mean'][0]:#.3g} ± " in tip(chromium, "loss")
    assert tip(chromium, "value") == ""
    chromium.hover("#kept", 0.5, 0.5)
    assert re.search(r"epoch [67] Full data 100.0 % ± 0.0 % InfoBatch 6\d\.\d % ± 0\.\d %", tip(chromium, "kept"))
    chromium.hover("#noise", 0.5, 0.5)
    assert re.search(r"epoch [67] Full data 1.00 ± 0.00 InfoBatch 1\.5\d ± 0\.\d", tip(chromium, "noise"))
    chromium.hover("#difference", 0.5, 0.3)
    change = data[1]["difference"]
    seeds = " ".join(f"seed {s} {signed(v)}" for s, v in enumerate(change["values"]))
    low, high = (signed(change["mean"] + side * change["reach"]) for side in (-1, 1))
    assert tip(chromium, "difference") == f"InfoBatch {signed(change['mean'])} 95 %: {low} to {high} {seeds}"
    chromium.hover("#scores", 0.5, 0.4)
    epoch, low, high, share = re.fullmatch(
        r"epoch (\d+) score ([\d.]+) to ([\d.]+) ([\d.]+) %", tip(chromium, "scores")
    ).groups()
    place = np.searchsorted(SCORE_EDGES, math.sqrt(float(low) * float(high))) - 1
    assert float(share) == pytest.approx(100 * data[1]["scores"][int(epoch) - 1][place], abs=0.006)
    assert chromium.complaints() == []


def test_the_keyboard_reads_the_charts_too(chromium: Browser, path: Path) -> None:
    chromium.open(path)
    chromium.run("document.querySelector('#value svg').focus()")
    chromium.press("ARROW_LEFT")
    assert tip(chromium, "value").startswith("epoch 12 ")
    chromium.press("ARROW_LEFT", "ARROW_LEFT", "ARROW_RIGHT")
    assert tip(chromium, "value").startswith("epoch 11 ")
    chromium.press("ESCAPE")
    assert tip(chromium, "value") == ""
    chromium.run("document.querySelector('#difference svg').focus()")
    chromium.press("ARROW_DOWN", "ARROW_DOWN")
    assert tip(chromium, "difference").startswith("Random −")
    chromium.press("TAB")
    assert tip(chromium, "difference") == ""
    assert chromium.run("return document.activeElement.closest('.chart').id") == "loss"
    assert chromium.run("return document.activeElement.getAttribute('aria-label')").startswith(
        "Training loss of each method"
    )
    # Every switch can be reached, and says whether it is on.
    chromium.run("document.querySelector('.legend button').focus()")
    chromium.press("SPACE")
    assert chromium.find(".legend button").get_attribute("aria-pressed") == "false"
    assert curves(chromium, "value") == ["InfoBatch", "Random", "InfoBatch, quantiles"]


def test_the_legend_switches_methods_off_and_on(chromium: Browser, path: Path) -> None:
    chromium.open(path)
    chromium.click(".legend button", 2)
    for chart in ("value", "loss", "kept"):
        assert curves(chromium, chart) == ["Full data", "InfoBatch", "InfoBatch, quantiles"]
    rows = [row.get_attribute("data-method") for row in chromium.all("#difference g[data-method]")]
    assert rows == ["InfoBatch", "InfoBatch, quantiles"]
    chromium.hover("#value", 0.5, 0.5)
    assert "Random" not in tip(chromium, "value")
    for number in (0, 1, 3):
        chromium.click(".legend button", number)
    assert curves(chromium, "value") == []
    assert "Nothing to show." in chromium.find("#value").text
    chromium.hover("#value", 0.5, 0.5)
    for number in range(4):
        chromium.click(".legend button", number)
    assert len(curves(chromium, "value")) == 4
    assert chromium.complaints() == []


def test_the_second_half_can_be_seen_alone(chromium: Browser, path: Path) -> None:
    chromium.open(path)
    before = chromium.find("#value").text
    chromium.click(".zoom")
    assert chromium.find(".zoom").get_attribute("aria-pressed") == "true"
    assert chromium.find("#value").text != before
    chromium.run("document.querySelector('#value svg').focus()")
    chromium.press("ARROW_RIGHT")
    assert tip(chromium, "value").startswith("epoch 7 ")
    chromium.press("ESCAPE")
    chromium.click(".zoom")
    assert chromium.find("#value").text == before


def test_scores_and_samples_are_those_of_the_method_picked(chromium: Browser, path: Path) -> None:
    chromium.open(path)

    def shown() -> tuple[list[str], str]:
        headings = [heading.text for heading in chromium.all("[data-samples] h3") if heading.is_displayed()]
        return headings, chromium.find("#scores .cell").value_of_css_property("fill")

    headings, blue = shown()
    assert headings == ["Hardest samples of InfoBatch", "Most pruned samples of InfoBatch"]
    chromium.click(".picker button", 0)
    headings, grey = shown()
    assert headings == ["Hardest samples of Full data"]
    assert grey != blue
    assert [made.get_attribute("aria-pressed") for made in chromium.all(".picker button")] == ["true"] + ["false"] * 3
    chromium.click(".picker button", 2)
    picture = next(image for image in chromium.all(".gallery img") if image.is_displayed())
    chromium.run("arguments[0].scrollIntoView({block: 'center'})", picture)
    assert picture.get_attribute("alt") in fashion.CLASSES
    assert chromium.run("return arguments[0].decode().then(() => arguments[0].naturalWidth)", picture) == 28


def test_charts_follow_the_window(chromium: Browser, path: Path) -> None:
    chromium.open(path)
    for width in (700, 1100):
        chromium.resize(width)
        # It is drawn anew in one of the next frames.
        frames = """const [chart, done] = [document.querySelector("#value"), arguments[0]];
          const fits = () => chart.querySelector("svg").viewBox.baseVal.width === chart.clientWidth;
          const look = (left) => (fits() || !left ? done(fits()) : requestAnimationFrame(() => look(left - 1)));
          look(100);"""
        assert chromium.driver.execute_async_script(frames)
        assert chromium.find("#value").size["width"] < width
    assert chromium.complaints() == []


def test_without_a_script_headline_tables_and_samples_are_there(chromium: Browser, path: Path) -> None:
    chromium.open(path, script=False)
    text = chromium.find("main").text
    for words in (
        "lossless within 0.5",
        "Most pruned samples of Random",
        "realised ÷ ideal",
        COMMAND,
        "which is switched off",
    ):
        assert words in text
    assert "Training loss" not in text  # no empty frame where a chart would be
    chromium.open(path)


def test_strange_text_is_text_and_long_names_do_not_widen_the_page(chromium: Browser, tmp_path: Path) -> None:
    picture = (np.zeros((2, 2, 1), np.uint8), EVIL)
    page.write(Results.of(evil_records(), 0.5), tmp_path / "evil.html", pictures={100: picture}, title=EVIL)
    chromium.open(tmp_path / "evil.html", width=360)
    assert chromium.driver.title == EVIL
    assert chromium.find("h1").text == EVIL
    assert [made.text for made in chromium.all(".legend button")] == ["Full data", EVIL]
    chromium.hover("#value", 0.8, 0.3)
    assert EVIL in tip(chromium, "value")
    assert chromium.run("return document.documentElement.scrollWidth") == 360
    assert chromium.complaints() == []


@pytest.mark.parametrize(
    "records",
    [
        runs(seeds=[0]),
        runs(["infobatch"], [0, 1]),
        runs(["full"], [0]),
        [run("full", 0, epochs=1), run("infobatch", 0, epochs=1)],
        [run("full", 0), replace(run("random", 0), values=(math.nan,) * 12, losses=(math.inf,) * 12)],
        [replace(r, histograms=()) for r in runs(["full", "infobatch"], [0, 1])],
        [replace(r, noise=()) if r.method == "full" else r for r in runs(["full", "infobatch"], [0, 1])],
        [run(method, seed) for method in ("full", *map(str, range(14))) for seed in (0, 1)],
    ],
    ids=[
        "one seed",
        "no full data",
        "full data alone",
        "one epoch",
        "diverged",
        "no scores",
        "some noise",
        "many methods",
    ],
)
def test_unusual_comparisons_are_drawn_without_complaint(
    chromium: Browser, tmp_path: Path, records: list[RunRecord]
) -> None:
    page.write(Results.of(records, 0), tmp_path / "page.html")
    chromium.open(tmp_path / "page.html", width=360)
    for chart in ("value", "difference", "loss", "kept", "noise", "scores"):
        chromium.hover(f"#{chart}", 0.6, 0.5)
    assert chromium.complaints() == []
    assert "NaN" not in chromium.run("return document.querySelector('main').innerHTML")
    assert chromium.run("return document.documentElement.scrollWidth") == 360


def test_the_browser_hears_of_errors_and_refusals(chromium: Browser, path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(
        text.replace('<div class="chart" id="value">', '<img src="https://example.org/x.png"><div id="value">')
    )
    chromium.open(broken)
    assert any("Content Security Policy" in message for message in chromium.complaints())
    broken.write_text(text.replace('id="data">{', 'id="data">broken{'))
    chromium.open(broken)
    assert any("SyntaxError" in message for message in chromium.complaints())
