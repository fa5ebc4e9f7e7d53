"""Values of a TOML file checked against dataclass annotations, and written back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from ralm_engine.errors import InputError

_KIND_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def convert(value: Any, hint: Any, *, where: str, later: Sequence[str] = ()) -> Any:
    """Checks a TOML value against a dataclass annotation; lists become tuples.

    Args:
        value: as tomllib reads it.
        hint: bool, int, float, str, a Literal of strings, a tuple of strings, or a union of those.
        where: what errors call the key, such as `[window] max_length`.
        later: choices of a Literal that are announced and not supported yet.

    Raises:
        InputError: another type, or a string that is no choice.
    """
    if get_origin(hint) is Literal:
        return _choice(value, get_args(hint), where=where, later=later)
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for kind in kinds:
        if kind is float and type(value) in (int, float):
            return float(value)
        if kind in (bool, int, str) and type(value) is kind:
            return value
        if get_origin(kind) is tuple and _is_texts(value):
            return (value,) if isinstance(value, str) else tuple(value)
    wanted = " or ".join(_KIND_NAMES.get(kind, "a list of strings") for kind in kinds)
    raise InputError(f"{where} = {toml_value(value)} is not {wanted}")


def accepts_text(hint: Any) -> bool:
    """Whether a bare string may stand for a value of this annotation."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return any(kind is str or get_origin(kind) in (tuple, Literal) for kind in kinds)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them."""
    names = list(known)
    close = get_close_matches(word, names, n=1)
    return f'did you mean "{close[0]}"?' if close else f"known are {', '.join(names)}"


def toml_value(value: Any) -> str:
    """A value in TOML syntax. Strings are JSON strings, which TOML reads, but for DEL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return str(value)


def _choice(value: Any, choices: Sequence[str], *, where: str, later: Sequence[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    allowed = ", ".join(toml_value(choice) for choice in choices)
    if value in later:
        raise InputError(
            f"{where} = {toml_value(value)} is not supported by this version",
            hint=f"use {allowed}",
        )
    hint = did_you_mean(str(value), choices) if get_close_matches(str(value), choices) else ""
    raise InputError(f"{where} = {toml_value(value)} is not one of {allowed}", hint=hint)


def _is_texts(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, str) for item in items)
