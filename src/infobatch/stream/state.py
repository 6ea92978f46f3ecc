"""The format of a stream's state: tensors and plain values, which ``torch.load(weights_only=True)`` reads back."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from ..core.state import checksum
from .stats import Totals

if TYPE_CHECKING:
    from .stream import Stream

VERSION = 1
_log = logging.getLogger(__name__)


def write(stream: Stream) -> dict[str, Any]:
    """The state of a stream; its place is None if workers read the stream."""
    gate, pending = stream._gate, stream._pending
    learned = {
        "settings": {**stream._settings},
        "groups": stream._groups.state(),
        "keys": {} if gate.keys is None else gate.keys.state(),
        "ids": {} if gate.ids is None else gate.ids.state(),
        "passes": stream._passes.state(),
        "totals": asdict(stream._totals),
        "updates": stream._updates,
        "choices": stream._choices,
        "in hand": stream._in_hand,
        "tickets": torch.cat([torch.zeros(0, dtype=torch.int64), *(ticket.cpu() for ticket, _ in pending)]),
        "losses": torch.cat([torch.zeros(0, dtype=torch.float64), *(loss.cpu().double() for _, loss in pending)]),
    }
    place = stream._resumed if stream._passage is None else stream._passage.state_dict()
    return {"stream version": VERSION, **learned, "checksum": checksum(learned), "place": place}


def read(stream: Stream, saved: dict[str, Any]) -> None:
    """Load a state of :func:`write` into a stream with the same settings; a ValueError says what is wrong."""
    version = saved.get("stream version") if isinstance(saved, dict) else None
    if not isinstance(version, int):
        raise ValueError("state_dict: this is not the state of a Stream (it has no stream version)")
    if version > VERSION:
        raise ValueError(
            f"state_dict has stream version {version}, this release of infobatch reads up to {VERSION}: upgrade it"
        )
    settings = saved.get("settings")
    here = stream._settings
    if not isinstance(settings, dict) or settings != here:
        settings = settings if isinstance(settings, dict) else {}
        different = [
            f"{name}: {settings.get(name)!r} in the state, {value!r} here"
            for name, value in here.items()
            if settings.get(name) != value
        ]
        raise ValueError(
            f"state_dict is from a different stream and was not loaded ({'; '.join(different)}). Make the Stream with "
            "the arguments of the saved run"
        )
    learned = {name: value for name, value in saved.items() if name not in ("stream version", "checksum", "place")}
    if saved.get("checksum") != checksum(learned):
        raise ValueError("state_dict is damaged (its checksum does not match) and was not loaded: use an older one")
    gate = stream._gate
    stream._groups.load(saved["groups"])
    if gate.keys is not None:
        gate.keys.load(saved["keys"])
    if gate.ids is not None:
        gate.ids.load(saved["ids"])
    stream._passes.load(saved["passes"])
    stream._totals = Totals(**saved["totals"])
    stream._updates, stream._choices = saved["updates"], saved["choices"]
    stream._in_hand = saved["in hand"]
    stream._pending = [(saved["tickets"].clone(), saved["losses"].clone())] if len(saved["tickets"]) else []
    stream._passage, stream._resumed = None, saved["place"]
    if saved["place"] is None and stream._updates:
        _log.warning(
            "the state holds no place in the source, because workers read it: load the state of your "
            "StatefulDataLoader as well; with torch's DataLoader the source begins anew"
        )
