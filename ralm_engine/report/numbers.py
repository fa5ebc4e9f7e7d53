"""How figures are written: one place for digits, signs, units and missing values."""

from __future__ import annotations

import math

MINUS = "\N{MINUS SIGN}"
MISSING = "n/a"
_UNITS = ("", "k", "M", "G", "T", "P", "E", "Z")
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def fixed(value: float | None, digits: int = 2) -> str:
    """`value` with a fixed number of decimals; missing and non-finite values are `n/a`."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{value:,.{digits}f}"
    return text.replace("-", MINUS if text.strip("-0.") else "")


def signed(value: float | None, digits: int = 2) -> str:
    """Like `fixed`, with a plus sign in front of positive values."""
    text = fixed(value, digits)
    positive = value is not None and math.isfinite(value) and value > 0
    return f"+{text}" if positive and float(text.replace(",", "")) != 0 else text


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    return fixed(value, 0)


def percent(value: float | None, digits: int = 0) -> str:
    """A share between 0 and 1 as a percentage."""
    return MISSING if value is None else f"{fixed(100 * value, digits)}%"


def interval(low: float | None, high: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """`low to high`, or nothing where a bound is missing."""
    write = signed if sign else fixed
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{write(low, digits)} to {write(high, digits)}"


def scaled(value: float | None, unit: str = "") -> str:
    """Three digits and an SI prefix: `1.25 TFLOP`."""
    if value is None or not math.isfinite(value):
        return MISSING
    step = 0
    while abs(value) >= 1000 and step < len(_UNITS) - 1:
        value /= 1000
        step += 1
    return f"{value:.3g} {_UNITS[step]}{unit}".strip()


def size(num_bytes: float | None) -> str:
    """Bytes in binary units: `1.5 GiB`."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return MISSING
    step = 0
    while abs(num_bytes) >= 1024 and step < 4:
        num_bytes /= 1024
        step += 1
    return f"{num_bytes:.{1 if step else 0}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[step]}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them: `12.3 s`, `4 min 10 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min {int(seconds % _MINUTE):02d} s"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE):02d} min"
    return f"{int(seconds // _DAY)} d {int(seconds % _DAY // _HOUR)} h"
