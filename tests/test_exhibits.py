"""Samples as a page shows them: what a user's function may return, and what the page shows where it fails."""

from __future__ import annotations

import base64
import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from infobatch import Html
from infobatch.exhibits import LARGEST, as_html, from_dataset, show

GREY = np.arange(64, dtype=np.uint8).reshape(8, 8)


def picture(shown: str) -> np.ndarray:
    """The pixels of the picture in a piece of HTML."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(shown.split("base64,")[1].split('"')[0]))))


@pytest.mark.parametrize(
    "content",
    [
        GREY,
        GREY[..., None],
        GREY[None],
        torch.from_numpy(GREY),
        torch.from_numpy(GREY)[None].float() / 255,
        GREY / 255.0,
        Image.fromarray(GREY),
    ],
)
def test_grey_pictures_of_any_kind_are_shown_without_loss(content: Any) -> None:
    assert (picture(as_html(content)) == GREY).all()


def test_colours_channels_first_or_last() -> None:
    colours = np.random.default_rng(0).integers(0, 255, (9, 7, 3), dtype=np.uint8)
    assert (picture(as_html(colours)) == colours).all()
    assert (picture(as_html(colours.transpose(2, 0, 1))) == colours).all()
    assert (picture(as_html(torch.from_numpy(colours).permute(2, 0, 1) / 255)) == colours).all()


def test_normalised_pictures_are_stretched_and_large_ones_made_small() -> None:
    assert picture(as_html(np.array([[-2.0, 2.0, 0, 0]] * 4))).max() == 255
    assert max(picture(as_html(np.zeros((900, 300, 3), np.uint8))).shape) == 160


def test_texts_are_escaped_and_html_is_not() -> None:
    assert as_html("<script>alert(1)</script>") == '<pre class="text">&lt;script&gt;alert(1)&lt;/script&gt;</pre>'
    assert as_html(Html("<b>bold</b>")) == "<b>bold</b>"


def test_sounds_and_encoded_pictures_as_bytes() -> None:
    assert as_html(b"RIFF....WAVE").startswith('<audio controls src="data:audio/wav;base64,UklGRi')
    file = io.BytesIO()
    Image.fromarray(GREY).save(file, "PNG")
    assert (picture(as_html(file.getvalue())) == GREY).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (3, "got a int: give a picture"),
        (None, "got a NoneType"),
        (np.zeros((2, 3, 4, 5)), "shape (2, 3, 4, 5) is no picture"),
        (b"abcdef", "bytes that begin with b&#x27;abcd&#x27;"),
        ("x" * (LARGEST + 1), "render gave 400,025 characters for sample 7"),
    ],
)
def test_content_that_cannot_be_shown_is_replaced_by_an_error(content: Any, message: str) -> None:
    shown = show(lambda index: content, 7)
    assert shown.startswith('<p class="failure">')
    assert message in shown
    assert "sample 7" in shown


def test_a_function_that_fails_is_quoted_and_escaped() -> None:
    def render(index: int) -> str:
        raise RuntimeError(f"no <file> {index}")

    assert show(render, 3) == ('<p class="failure">render failed for sample 3: RuntimeError: no &lt;file&gt; 3</p>')


def test_random_augmentation_does_not_change_the_training() -> None:
    def render(index: int) -> np.ndarray:
        return torch.rand(8, 8).numpy() * np.random.rand() * random.random()  # noqa: NPY002

    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    show(render, 0)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_pictures_and_texts_are_taken_from_the_data() -> None:
    for sample in (
        (torch.zeros(1, 28, 28), 3),
        {"label": 3, "image": Image.fromarray(GREY)},
        [GREY, 1],
        ("some words", 0),
        "words",
    ):
        show_sample = from_dataset([sample])
        assert show_sample is not None
        assert as_html(show_sample(0))
    for nothing in ((torch.zeros(5), 3), 4.0, {"x": torch.zeros(2, 2)}, (torch.zeros(3, 2),)):
        assert from_dataset([nothing]) is None
    assert from_dataset({}) is None  # cannot be read
