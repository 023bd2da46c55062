"""Frozen records to and from the plain data of JSON."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any


@cache
def _hints(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def decode(kind: Any, value: Any) -> Any:
    """Build `kind` (a record, enum, tuple, mapping, union or plain type) from plain JSON data."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ValueError(f"{kind.__name__} should be an object, not {type(value).__name__}")
        known = {k: decode(t, value[k]) for k, t in _hints(kind).items() if k in value}
        return kind(**known)
    if origin is tuple:
        return tuple(decode(inside[0], item) for item in value)
    if origin is types.UnionType or origin is typing.Union:
        return None if value is None else decode(next(t for t in inside if t is not type(None)), value)
    if origin is not None and issubclass(origin, Mapping):
        return {key: decode(inside[1], item) for key, item in value.items()}
    return value


def finite(value: Any) -> Any:
    """NaN and infinities as null: JSON has no word for them, and strict readers refuse Python's."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return value
