from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from infobatch.report.album import THUMBNAIL, Album, RankedSample, encode, list_hardest, list_most_pruned
from infobatch.report.outcome import outcomes
from report.runs import run


def decoded(link: str) -> np.ndarray:
    head, _, content = link.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_small_picture_keeps_every_pixel(channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 30, channels), dtype=np.uint8)
    np.testing.assert_array_equal(decoded(encode(image, 0)), image[..., 0] if channels == 1 else image)


def test_a_large_picture_is_made_small_and_keeps_its_shape() -> None:
    assert decoded(encode(np.zeros((300, 600, 3), np.uint8), 0)).shape == (THUMBNAIL // 2, THUMBNAIL, 3)


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((3, 4, 5), np.uint8), [[0]]]
)
def test_arrays_that_are_no_pictures_are_refused(image: object) -> None:
    with pytest.raises(ValueError, match=r"pictures\[7\] must be an array of height × width × 1, 3 or 4 bytes, got "):
        encode(image, 7)


def test_samples_are_ranked_by_the_seeds_that_agree_and_then_by_their_mean() -> None:
    tops = [((1, 9.0), (2, 5.0), (3, 4.0)), ((2, 7.0), (3, 8.0), (4, 1.0))]
    [_, outcome] = outcomes([run("full", 0), *(run("infobatch", seed, hardest=top) for seed, top in enumerate(tops))])
    assert list_hardest(outcome) == [
        RankedSample(2, 6.0, 2),
        RankedSample(3, 6.0, 2),
        RankedSample(1, 9.0, 1),
        RankedSample(4, 1.0, 1),
    ]


def test_full_data_has_no_pruned_sample_to_show() -> None:
    full, pruned = outcomes([run("full", 0), run("infobatch", 0)])
    assert list_most_pruned(full) == []
    assert len(list_most_pruned(pruned)) == 12


def test_a_sample_without_a_picture_is_shown_by_its_number() -> None:
    shown = Album({1: (np.zeros((2, 2, 1), np.uint8), "a <bag>")}).gallery(
        [RankedSample(1, 3, 2), RankedSample(5, 2, 1)], 2, "score {:g}"
    )
    first, second = shown.split("<li>")[1:]
    assert 'alt="a &lt;bag&gt;"' in first
    assert "<img" not in second
    assert second.startswith("<p><span>sample 5</span><span>score 2</span><span>1 of 2 seeds</span>")
