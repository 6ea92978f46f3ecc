"""A sample as a page shows it: a picture, a text, a sound or HTML, from the user's data or function."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

LONGEST_SIDE = 160  # pixels of a picture on the page, at most
LARGEST = 400_000  # characters of one sample on the page, at most
_SOUNDS = {b"RIFF": "wav", b"OggS": "ogg", b"fLaC": "flac", b"ID3": "mpeg", b"\xff\xfb": "mpeg", b"\xff\xf3": "mpeg"}


class Html(str):
    """HTML that a page shows as it is: ``render=lambda index: infobatch.Html("<b>bold</b>")``.

    Any other text is shown letter by letter. Scripts do not run on the page, and nothing is loaded from elsewhere.
    """


def show(render: Callable[[int], Any], index: int) -> str:
    """Turn what ``render`` returns for a sample into HTML; if it fails, the HTML says so."""
    try:
        with keep_random_state():
            content = as_html(render(index))
    except Exception as error:  # the user's function may fail in any way, and one sample must not cost the page
        return _failure(f"render failed for sample {index}: {type(error).__name__}: {error}")
    if len(content) > LARGEST:
        return _failure(f"render gave {len(content):,} characters for sample {index}: a page takes up to {LARGEST:,}")
    return content


def as_html(content: Any) -> str:
    """Turn a picture (PIL, array or tensor), bytes (a sound or an encoded picture), a text or Html into HTML.

    >>> as_html("a < b"), as_html(Html("<i>a</i>"))
    ('<pre class="text">a &lt; b</pre>', '<i>a</i>')
    """
    if isinstance(content, Html):
        return str(content)
    if isinstance(content, str):
        return f'<pre class="text">{html.escape(content)}</pre>'
    if isinstance(content, bytes | bytearray):
        return _of_bytes(bytes(content))
    if isinstance(content, torch.Tensor):
        content = content.detach().cpu().numpy()
    if isinstance(content, np.ndarray):
        if not is_picture(content):
            raise TypeError(
                f"an array of shape {content.shape} is no picture: give height × width, with 1, 3 or 4 channels"
            )
        return _picture(as_bytes(content))
    if _is_pil(content):
        return _picture(content)
    raise TypeError(
        f"render must return something to show, got a {type(content).__name__}: give a picture (PIL, array, tensor), "
        "a text, bytes of a sound, or infobatch.Html"
    )


def from_dataset(dataset: Any) -> Callable[[int], Any] | None:
    """Make a ``render`` function for a data set whose samples hold pictures or texts; None for any other."""
    try:
        with keep_random_state():
            first = _find_showable(dataset[0])
    except Exception:  # a page must not fail because a sample cannot be read
        return None
    return None if first is None else lambda index: _find_showable(dataset[index])


def _find_showable(sample: Any) -> Any:
    """Return the first picture or text in a sample, or None."""
    parts = sample.values() if isinstance(sample, Mapping) else sample if isinstance(sample, tuple | list) else [sample]
    for part in parts:
        if isinstance(part, str) or _is_pil(part):
            return part
        if isinstance(part, torch.Tensor | np.ndarray) and is_picture(np.empty(part.shape, bool)):
            return part
    return None


def is_picture(array: NDArray[Any]) -> bool:
    """Whether an array has the shape of a picture, with its channels first, last or absent.

    >>> [is_picture(np.zeros(shape)) for shape in [(28, 28), (1, 28, 28), (32, 32, 3), (10,), (3, 2)]]
    [True, True, True, False, False]
    """
    sides: tuple[int, ...] = array.shape
    if array.ndim == 3:
        sides = sides[1:] if sides[0] in (1, 3, 4) else sides[:2] if sides[2] in (1, 3, 4) else ()
    return len(sides) == 2 and min(sides) >= 4


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """A picture's values as bytes, channels last; if some are outside [0, 1], the range is stretched to 0 … 255."""
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        values = (values - low) / ((high - low) or 1)
    return np.asarray(np.rint(255 * values), np.uint8)


def _picture(picture: Any) -> str:
    """A small copy of a picture as an HTML element: small pictures as PNG, without loss, others as JPEG."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('pictures on the page need Pillow: pip install "infobatch[lab]"') from error
    image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    small = max(image.size) <= 64
    image = image.convert("RGBA" if image.mode in ("RGBA", "LA", "P") else "L" if image.mode in ("1", "L") else "RGB")
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    kind = "PNG" if small or image.mode == "RGBA" else "JPEG"
    content = io.BytesIO()
    image.save(content, kind, optimize=True, **({} if kind == "PNG" else {"quality": 80}))
    look = "" if small else ' class="smooth"'
    return f'<img{look} alt="" src="{_link(f"image/{kind.lower()}", content.getvalue())}">'


def _of_bytes(content: bytes) -> str:
    if content[:8] == b"\x89PNG\r\n\x1a\n" or content[:3] == b"\xff\xd8\xff":
        try:
            from PIL import Image
        except ImportError as error:
            raise ImportError('pictures on the page need Pillow: pip install "infobatch[lab]"') from error
        return _picture(Image.open(io.BytesIO(content)))
    for start, kind in _SOUNDS.items():
        if content.startswith(start):
            return f'<audio controls src="{_link(f"audio/{kind}", content)}"></audio>'
    raise TypeError(f"bytes that begin with {content[:4]!r} are no sound (wav, ogg, flac, mp3) or picture (png, jpeg)")


def _is_pil(content: Any) -> bool:
    """Whether the content is a picture of Pillow's; Pillow is not imported to find out."""
    return any(kind.__module__.startswith("PIL.") for kind in type(content).__mro__)


def _link(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _failure(words: str) -> str:
    return f'<p class="failure">{html.escape(words[:500])}</p>'


@contextlib.contextmanager
def keep_random_state() -> Iterator[None]:
    """Put the random generators back at the end: augmenting a sample must not change the training."""
    python, old = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(old)  # noqa: NPY002
