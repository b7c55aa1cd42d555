"""How numbers are written: on a terminal, on pages, in charts and in tables alike."""

from __future__ import annotations

import math


def number(value: float | None, decimals: int = 3, signed: bool = False) -> str:
    """A number with the digits that matter: 12,345 or 471.2 or 0.512 or 3.4e-7.

    value      None and what is not finite become a dash
    decimals   of numbers below 100; a smaller number than these can show keeps two digits
    signed     whether a positive number carries a plus
    """
    if value is None or not math.isfinite(value):
        return "–"
    sign = "+" if signed and value > 0 else ""
    size = abs(value)
    if size >= 1e9 or 0 < size < 0.5 * 10**-decimals:
        digits, _, power = f"{value:.2g}".partition("e")
        return f"{sign}{digits}e{int(power)}" if power else sign + digits
    if size >= 1000:
        return f"{sign}{value:,.0f}"
    places = min(decimals, 1) if size >= 100 else decimals
    return f"{sign}{value + 0.0:.{places}f}"  # adding zero turns -0.0 into 0.0


def short(value: float | None) -> str:
    """The same, without decimals if the number is whole."""
    whole = value is not None and math.isfinite(value) and float(value).is_integer()
    return number(value, decimals=0 if whole else 3)


def cell(value: float) -> str:
    """A number in a cell of a matrix, which has room for two decimals."""
    return number(round(value, 2), decimals=2)


def interval(mean: float | None, low: float | None, high: float | None) -> str:
    """A mean with its interval, whose ends have as many decimals as the mean, unless it is tiny."""
    text = number(mean)
    if mean is None or low is None or high is None:
        return text
    _, _, fraction = text.partition(".")
    decimals = len(fraction) if fraction.isdecimal() else 3
    if max(abs(low), abs(high)) >= 0.01:
        decimals = min(decimals, 3)  # beside a large end, more digits of it mean nothing
    return f"{text} [{number(low, decimals)}, {number(high, decimals)}]"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
