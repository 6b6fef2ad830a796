r"""Text from data as people see it: on a terminal, in a message, on a model card.

Names of columns, groups and labels come from files that somebody else may have written. A terminal obeys some
characters instead of showing them; here they become what Python writes for them, such as ``\x1b``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LONGEST_NAME = 40


def printable(value: object, *, lines: bool = False) -> str:
    r"""Return text in which every character is shown and none is obeyed.

    Control characters (C0, C1, delete), line breaks, marks that turn the direction of writing, invisible characters and
    halves of surrogate pairs are written as Python escapes.

    Parameters
    ----------
    value : object
        Anything; its ``str`` is taken.
    lines : bool, default=False
        Whether line feeds stay: for text that was laid out here, of names that were made printable before.

    Examples
    --------
    >>> from evenhand.text import printable
    >>> print(printable("F\x1b[31m\nM \u202eabc é"))
    F\x1b[31m\nM \u202eabc é
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(sign if _is_shown(sign) or (lines and sign == "\n") else _escaped(sign) for sign in text)


def short_name(value: object) -> str:
    """Return a name for a table: printable, in quotes where it is blank, and its middle left out where it is long."""
    text = printable(value)
    if not text.strip():
        text = ascii(text)
    return text if len(text) <= LONGEST_NAME else f"{text[:28]}...{text[-9:]}"


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1, indent: str = "") -> str:
    """Return rows as aligned text: the first columns, which hold names, to the left, and the others to the right.

    Examples
    --------
    >>> from evenhand.text import table_text
    >>> print(table_text(["group", "rate"], [["F", "0.1"], ["M", "0.25"]]))
    group  rate
    F       0.1
    M      0.25
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = []
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if at < names else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(indent + "  ".join(cells).rstrip())
    return "\n".join(lines)


def _is_shown(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
