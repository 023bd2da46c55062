"""Small helpers for the sentences of checks."""

from __future__ import annotations

from collections.abc import Iterable


def some(items: Iterable[str], shown: int = 5) -> str:
    """The first few of a list in words: "a, b and 3 more"."""
    listed = list(items)
    rest = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {rest} more" if rest > 0 else "")
