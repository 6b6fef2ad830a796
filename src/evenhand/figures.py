"""Figures that display without a network: static SVG by default, interactive on request.

Charts are made with Altair. Their colours are CSS variables, so that the surrounding page or notebook can set them; in
a file they are those of a light page.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from evenhand.arguments import check_path
from evenhand.errors import InputError, require
from evenhand.files import local_path, write_bytes, write_text

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
FORMATS = (".svg", ".png", ".html", ".json")
# Colours that are distinguishable on white and on black: a notebook's background is not known.
_NOTEBOOK = {
    "ink": "currentColor",
    "soft": "currentColor",
    "rule": "rgba(128,128,128,.3)",
    "edge": "rgba(128,128,128,.5)",
    "accent": "#3b82d6",
    "good": "#2f9e5b",
    "bad": "#d9534a",
    "open": "#b5851a",
    "g0": "#3b82d6",
    "g1": "#d9772b",
}
_FILE = {**_NOTEBOOK, "ink": "#1b1f24", "soft": "#57606a", "rule": "#e2e5e9", "edge": "#c9ced6"}


def altair(feature: str) -> Any:
    """Return the drawing package, or raise an error that says what to install."""
    return require(feature, "report", "altair", "vl_convert", package="altair and vl-convert-python")


class Figure:
    """A chart that displays itself as SVG in a notebook, without a network and without JavaScript.

    Attributes
    ----------
    title : str
        The title of the chart.
    """

    def __init__(self, chart: Any, title: str, *, width: int = 480, height: int = 300, left: int = 2) -> None:
        self._chart = chart
        self.title = title
        self._size = {"width": width, "height": height}
        self._left = left

    @property
    def chart(self) -> Any:
        """The Altair chart, with colours for a light page; interactive in a notebook with a network connection."""
        return altair("Figure.chart").Chart.from_dict(self.to_dict())

    def svg(self) -> str:
        """Return the figure as SVG."""
        return str(_coloured(to_svg(self._chart, self.title, left=self._left, **self._size), _FILE))

    def to_dict(self) -> dict[str, Any]:
        """Return the chart as Vega-Lite, with colours for a light page."""
        plain = self._chart.properties(title=self.title, **self._size).to_dict()
        found: dict[str, Any] = _coloured(plain, _FILE)
        return found

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the figure and return the path.

        Parameters
        ----------
        path : path
            An .svg or .png picture, an .html page that is interactive without a network, or Vega-Lite as .json.
        """
        check_path(path)
        target = local_path(path, write=True)
        if target.suffix.lower() not in FORMATS:
            raise InputError(f"{target}: the file name must end with one of {', '.join(FORMATS)}.")
        import vl_convert

        if target.suffix.lower() == ".svg":
            write_text(target, self.svg())
        elif target.suffix.lower() == ".png":
            write_bytes(target, vl_convert.vegalite_to_png(self.to_dict(), scale=2))
        elif target.suffix.lower() == ".html":
            write_text(target, vl_convert.vegalite_to_html(self.to_dict(), bundle=True))
        else:
            write_text(target, json.dumps(self.to_dict(), indent=2))
        return target

    def __repr__(self) -> str:
        return f"<Figure: {self.title}>"

    def _repr_html_(self) -> str:
        colours = ";".join(f"--{name}:{value}" for name, value in _NOTEBOOK.items())
        svg = to_svg(self._chart, self.title, left=self._left, **self._size)
        return f'<figure style="{colours};margin:.5em 0;color:inherit">{svg}</figure>'


def _coloured(value: Any, colours: Mapping[str, str]) -> Any:
    """Return text, or plain data that contains texts, with CSS variables replaced by colours."""
    if isinstance(value, str):
        return re.sub(r"var\(--(\w+)\)", lambda found: colours.get(found.group(1), "#57606a"), value)
    if isinstance(value, Mapping):
        return {key: _coloured(item, colours) for key, item in value.items()}
    return [_coloured(item, colours) for item in value] if isinstance(value, list) else value


def to_svg(chart: Any, title: str, *, width: int, height: int, left: int = 2) -> str:
    """Return a chart as SVG with a title that fits the width of its container.

    ``left`` is extra space for long names on the left: the reader's font may be wider than the measured one.
    """
    import vl_convert

    specification = (
        chart.properties(width=width, height=height, background="transparent")
        .configure(font=FONT, padding={"left": left, "right": 2, "top": 2, "bottom": 2})
        .configure_view(stroke=None)
        .configure_mark(aria=False)
        .configure_axis(
            labelColor="var(--soft)",
            titleColor="var(--soft)",
            gridColor="var(--rule)",
            domain=False,
            ticks=False,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            labelPadding=6,
            titlePadding=8,
            tickCount=5,
        )
        .configure_legend(
            labelColor="var(--soft)", labelFontSize=12, title=None, orient="top", symbolSize=60, labelLimit=90
        )
    ).to_dict()
    svg: str = vl_convert.vegalite_to_svg(specification)
    svg = re.sub(r"<svg [^>]*?viewBox=\"([^\"]*)\">", _opening(title), svg, count=1)
    svg = svg.replace(' role="graphics-object" aria-roledescription="group mark container"', "")
    svg = re.sub(
        r' (?:role="graphics-\w+"|aria-roledescription="[^"]*"|aria-label="[^"]*"|aria-hidden="true")',
        "",
        svg,
    )
    svg = svg.replace('<svg role="img"', f'<svg role="img" aria-label={quoteattr(title)}', 1)
    return _own_ids(re.sub(r"<[^>]+>", lambda tag: _DECIMALS.sub(_shorter, tag.group()), svg), title)


_DECIMALS = re.compile(r"\d+\.\d{3,}")


def _shorter(number: re.Match[str]) -> str:
    return f"{float(number.group()):.2f}".rstrip("0").rstrip(".")


def _own_ids(svg: str, title: str) -> str:
    """Name the clipping paths after the chart: Vega counts them through the life of the process."""
    place: dict[str, int] = {}
    stem = re.sub(r"\W+", "-", title.lower())[:40]
    return re.sub(r"\bclip(\d+)\b(?=[\")])", lambda found: f"{stem}{place.setdefault(found.group(1), len(place))}", svg)


def _opening(title: str) -> Any:
    def write(found: re.Match[str]) -> str:
        width = found.group(1).split()[2]
        return (
            f'<svg role="img" xmlns="http://www.w3.org/2000/svg" viewBox="{found.group(1)}" '
            f'style="max-width:{width}px;overflow:visible"><title>{escape(title)}</title>'
        )

    return write
