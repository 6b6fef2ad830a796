"""Checks of single arguments: each error says what was passed and what is expected."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import InputError

_PLAIN = (str, bytes, bool, int, float, complex, type(None), list, tuple, dict, set, np.generic)

Seed = int | np.random.RandomState | np.random.Generator | None


def shown(value: object) -> str:
    """Return a value as error messages show it: short and on one line."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    if not isinstance(value, _PLAIN):
        return f"a {kind}"
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        return f"a very large {kind}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_number(value: object) -> bool:
    """Return whether a value is one number that a float can hold; truth values and text do not count."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return not isinstance(value, int) or abs(value) <= sys.float_info.max


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number; truth values do not count."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_whole(value: Any, name: str, *, at_least: int, at_most: int = 2**31 - 1) -> int:
    """Return a whole number within bounds, or raise."""
    if not (is_whole(value) and at_least <= value <= at_most):
        wanted = f"of at least {at_least}" if at_most == 2**31 - 1 else f"from {at_least} to {at_most}"
        raise InputError(f"{name} must be a whole number {wanted}; got {shown(value)}.")
    return int(value)


def check_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Return one of several words, or raise."""
    if not (isinstance(value, str) and value in choices):
        words = [repr(choice) for choice in choices]
        raise InputError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}; got {shown(value)}.")
    return value


def check_flag(value: Any, name: str) -> bool:
    """Return a truth value, or raise."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False; got {shown(value)}.")
    return bool(value)


def check_text(value: Any, name: str, what: str = "text") -> str:
    """Return a text, or raise. A text with half a surrogate pair cannot be written to a file."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be {what}; got {shown(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} has a character that cannot be written in UTF-8; got {shown(value)}.") from None
    return value


def check_label(value: Any, name: str = "pos_label") -> Hashable:
    """Return a label, or raise if it is not hashable or not equal to itself."""
    try:
        hash(value)
        known = bool(value == value)
    except (TypeError, ValueError, ArithmeticError):
        known = False
    if not known:
        raise InputError(f"{name} must be one label, such as 1 or 'yes'; got {shown(value)}.")
    label: Hashable = plain_label(value)
    return label


def plain_label(value: Any) -> Any:
    """Return a single NumPy number, truth value or text as Python's, and anything else unchanged."""
    return value.item() if isinstance(value, np.bool_ | np.number | np.str_) else value


def check_path(path: Any, name: str = "path") -> Path:
    """Return a path, or raise."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InputError(f"{name} must be the path of a file or folder; got {shown(path)}.")
    check_text(os.fspath(path), name)
    if not os.fspath(path) or "\x00" in os.fspath(path) or any(len(part) > 255 for part in Path(path).parts):
        raise InputError(f"{name} must be the path of a file or folder; got {shown(path)}.")
    return Path(path)


def check_seed(random_state: Any) -> Any:
    """Return a valid seed for a NumPy generator, or raise."""
    seeds = (np.random.Generator, np.random.RandomState, np.random.SeedSequence, np.random.BitGenerator)
    if random_state is None or isinstance(random_state, seeds):
        return random_state
    if not is_whole(random_state) or random_state < 0:
        raise InputError(f"random_state must be a whole number >= 0, a Generator or None; got {shown(random_state)}.")
    return random_state


def is_missing(value: object) -> bool:
    """Return whether a value means "unknown": None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float | np.floating) and bool(value != value)
