"""How results are displayed: sentences and tables, written as HTML for notebooks or as text.

The HTML needs no network and no JavaScript. It inherits the colours of the surrounding page, so that it is readable
on light and dark backgrounds. Verdicts have fixed colours with the same contrast on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from evenhand.text import printable, table_text

TONES = {
    "pass": "good",
    "holds": "good",
    "fail": "bad",
    "violated": "bad",
    "insufficient evidence": "open",
    "undecided": "open",
}
WIDTH = 80
_STYLE = """\
.evenhand{font-size:.9rem;line-height:1.5;color:inherit}
.evenhand p{margin:.3em 0;max-width:70em}
.evenhand table{border-collapse:collapse;margin:.4em 0 .8em;color:inherit;font-variant-numeric:tabular-nums}
.evenhand caption{text-align:left;caption-side:top;font-weight:600;color:inherit;padding:.2em 0}
.evenhand tr{background:transparent}
.evenhand th,.evenhand td{text-align:right;padding:.2em .8em .2em 0;border:0;\
border-bottom:1px solid rgba(128,128,128,.35);background:transparent;color:inherit}
.evenhand th{font-weight:600}
.evenhand table tr .name{text-align:left}
.evenhand b.tone{color:#fff;padding:.05em .6em;border-radius:.8em;font-weight:600}
.evenhand .good{background:#1a6b3c}.evenhand .bad{background:#a8261c}.evenhand .open{background:#7a5200}"""


@dataclass(frozen=True)
class Table:
    """Rows of text below column heads; the first columns contain names."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    caption: str = ""


@dataclass(frozen=True)
class Description:
    """The displayed form of an object: a title, then sentences and tables in order."""

    title: str
    parts: Sequence[str | Table] = ()

    def html(self) -> str:
        """Return the description as a piece of HTML."""
        inner = "".join(_table(part) if isinstance(part, Table) else f"<p>{_toned(part)}</p>" for part in self.parts)
        return f'<div class="evenhand"><style>{_STYLE}</style><p><b>{_text(self.title)}</b></p>{inner}</div>'

    def text(self) -> str:
        """Return the description as lines of text, tables within 80 columns."""
        lines = [printable(self.title)]
        for part in self.parts:
            if isinstance(part, str):
                lines.append(printable(part))
                continue
            cells = [[printable(cell) for cell in row] for row in part.rows]
            lines += ["", *([printable(part.caption)] if part.caption else [])]
            heads = [printable(head) for head in part.heads]
            lines.append(table_text(heads, cells, names=part.names, indent="  ", width=WIDTH))
        return "\n".join(lines)


class Displayed:
    """Adds the display methods of notebooks to a class that returns a :class:`Description` from ``_describe``."""

    def _describe(self) -> Description:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._describe().html()


def _text(value: str) -> str:
    return escape(printable(value))


def _toned(text: str) -> str:
    tone = TONES.get(text)
    return _text(text) if tone is None else f'<b class="tone {tone}">{_text(text)}</b>'


def _table(table: Table) -> str:
    def row(cells: Sequence[str], kind: str) -> str:
        named = [' class="name"' if at < table.names else "" for at in range(len(cells))]
        tags = [kind if kind == "th" or at else "th" for at in range(len(cells))]
        return "".join(f"<{t}{n}>{_toned(cell)}</{t}>" for t, n, cell in zip(tags, named, cells, strict=True))

    head = f"<thead><tr>{row(table.heads, 'th')}</tr></thead>"
    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    caption = f"<caption>{_text(table.caption)}</caption>" if table.caption else ""
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>"
