"""Streams: data without length or index, read once or more; part of it is let through, each sample with its weight."""

from .stream import Stream

__all__ = ["Stream"]
