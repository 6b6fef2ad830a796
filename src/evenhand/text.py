r"""Makes text from data safe to display on a terminal, in a message and on a model card.

Names of columns, groups and labels come from files that somebody else may have written. A terminal interprets some
characters instead of showing them; here they are replaced by Python escapes, such as ``\x1b``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LONGEST_NAME = 40


def printable(value: object, *, lines: bool = False) -> str:
    r"""Return text in which every special character is visible and has no effect.

    Control characters (C0, C1, delete), line breaks, marks that change the writing direction, invisible characters and
    halves of surrogate pairs are written as Python escapes.

    Parameters
    ----------
    value : object
        Any object; its ``str`` is used.
    lines : bool, default=False
        Whether line feeds are kept: for text laid out by evenhand, whose names are already printable.

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
    """Return a name for a table: printable, in quotes if it is blank, and shortened in the middle if it is long."""
    text = printable(value)
    if not text.strip():
        text = ascii(text)
    if columns_of(text) <= LONGEST_NAME:
        return text
    return f"{_first(text, 28)}...{_first(text[::-1], 9)[::-1]}"


def _first(text: str, columns: int) -> str:
    """Return the beginning of a text that fits into a number of terminal columns."""
    length = min(len(text), columns)
    while columns_of(text[:length]) > columns:
        length -= 1
    return text[:length]


def table_text(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    names: int = 1,
    indent: str = "",
    width: int | None = None,
) -> str:
    """Return rows as aligned text: the first columns, which contain names, to the left, the others to the right.

    If ``width`` is given and the table is wider, further columns follow below, with the row names repeated.

    Examples
    --------
    >>> from evenhand.text import table_text
    >>> print(table_text(["group", "rate"], [["F", "0.1"], ["M", "0.25"]]))
    group  rate
    F       0.1
    M      0.25
    >>> print(table_text(["group", "rate", "accuracy"], [["F", "0.1", "0.9"]], width=12))
    group  rate
    F       0.1
    <BLANKLINE>
    group  accuracy
    F           0.9
    """
    columns = [list(column) for column in zip(heads, *rows, strict=True)]
    widths = [max(map(columns_of, column)) for column in columns]
    blocks: list[list[int]] = [[0]]
    for at in range(1, len(columns)):
        line = len(indent) + sum(widths[place] + 2 for place in blocks[-1]) + widths[at]
        if width is not None and line > width and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(at)
    texts = []
    for block in blocks:
        padded = [[_padded(cell, widths[at], left=at < names) for cell in columns[at]] for at in block]
        texts.append("\n".join(indent + "  ".join(cells).rstrip() for cells in zip(*padded, strict=True)))
    return "\n\n".join(texts)


def columns_of(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) > 0 for sign in text)


def _padded(cell: str, width: int, *, left: bool) -> str:
    space = " " * (width - columns_of(cell))
    return cell + space if left else space + cell


def _is_shown(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
