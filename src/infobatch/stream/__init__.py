"""Streams: data without length or index, read once or more, of which part is let through with its weight."""

from .stream import Stream

__all__ = ["Stream"]
