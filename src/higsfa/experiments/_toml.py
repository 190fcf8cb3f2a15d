"""Settings written as TOML, which the standard library can only read."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["to_toml"]


def to_toml(tables: dict[str, Any]) -> str:
    """Nested dictionaries of texts, numbers, lists and dictionaries as a TOML document; empty ones are left out.

    Examples
    --------
    >>> print(to_toml({"title": "a", "data": {"kind": "toy", "sizes": [1, 2]}}))
    title = "a"
    <BLANKLINE>
    [data]
    kind = "toy"
    sizes = [1, 2]
    <BLANKLINE>
    """
    lines: list[str] = []
    _write(tables, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _write(table: dict[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    own = {key: value for key, value in table.items() if key not in inner}
    if path and own:
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in own.items()]
    for key, value in inner.items():
        _write(value, (*path, key), lines)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    return repr(value)
