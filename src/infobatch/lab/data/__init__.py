"""Data sets by name, read from a folder."""
