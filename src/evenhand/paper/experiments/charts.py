"""The experiments' charts: Altair specifications, converted to self-contained SVG and PNG files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from evenhand.errors import require

FONT = "Helvetica, Arial, sans-serif"
# Okabe and Ito's colours, which readers with any colour vision can distinguish, darkest first.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#000000")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
# One mark for a method in all figures, so that they can be read side by side.
_BLUE, _ORANGE, _GREEN, _PINK, _YELLOW, _SKY, _GREY, _BLACK = COLOURS
MARKS = {
    "MBS": (_BLUE, "circle"),
    "MBS (Algorithm 1)": (_BLUE, "circle"),
    "MBS (Algorithm 2)": (_BLUE, "circle"),
    "MBS (certified)": (_SKY, "square"),
    "MBS, cross-fitted": (_GREEN, "triangle-up"),
    "MBS, cross-fitted, ensemble": (_BLACK, "diamond"),
    "MBS, own p(Y|x)": (_YELLOW, "triangle-left"),
    "MBS, A known": (_SKY, "triangle-right"),
    "MBS, cross-fitted, A known": (_GREEN, "triangle-down"),
    "Z17": (_ORANGE, "cross"),
    "Z17 (rates)": (_GREY, "cross"),
    "J19": (_PINK, "square"),
    "H16": (_PINK, "square"),
    "Reductions": (_ORANGE, "square"),
}
_SPOKEN = re.compile(r' (?:role="graphics-\w+"|aria-roledescription="[^"]*"|aria-label="[^"]*"|aria-hidden="true")')
INK, SOFT, GRID = "#222222", "#555555", "#e6e6e6"


def altair() -> Any:
    """Return the package, or raise an error that says what to install."""
    return require("A figure", "report", "altair", "vl_convert", package="altair and vl-convert-python")


def to_svg(chart: Any, title: str, *, note: str = "") -> str:
    """Return a chart as an SVG file on white, with its title for readers who do not see it."""
    import vl_convert

    if note:
        chart = chart.properties(title={"text": note, "color": COLOURS[1], "fontSize": 11, "anchor": "start"})
    specification = (
        chart.configure(font=FONT, padding=8, background="white")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=SOFT,
            titleColor=INK,
            gridColor=GRID,
            domainColor=GRID,
            ticks=False,
            labelFontSize=11,
            titleFontSize=12,
            titleFontWeight="normal",
            labelPadding=5,
            titlePadding=8,
        )
        .configure_title(fontSize=12, fontWeight="normal", color=INK, anchor="start")
        .configure_legend(
            labelFontSize=11, labelColor=INK, titleFontSize=11, titleFontWeight="normal", symbolSize=70, labelLimit=400
        )
    ).to_dict()
    svg: str = vl_convert.vegalite_to_svg(specification)
    # Vega counts clipping paths through the life of the process: the same chart shall be the same bytes.
    places: dict[str, int] = {}
    svg = re.sub(r"\bclip(\d+)\b(?=[\")])", lambda found: f"clip{places.setdefault(found[1], len(places))}", svg)
    svg = re.sub(
        r' (?:role="graphics-\w+"|aria-roledescription="[^"]*"|aria-label="[^"]*"|aria-hidden="true")', "", svg
    )
    # Shorter coordinates, but not the texts between the tags.
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"\d+\.\d{3,}", _shorter, tag[0]), svg)
    opening = f'<svg role="img" aria-label={quoteattr(title)} '
    return svg.replace("<svg ", opening, 1).replace(">", f"><title>{escape(title)}</title>", 1)


def to_png(svg: str) -> bytes:
    """Return the picture of an SVG file, at twice its size."""
    import vl_convert

    picture: bytes = vl_convert.svg_to_png(svg, scale=2)
    return picture


def tradeoff(rows: Sequence[Mapping[str, Any]], gap: str, tolerances: Sequence[float]) -> Any:
    """Return accuracy against gap: a line for each method, whiskers of one standard error, the tolerances as lines.

    Rows have ``panel``, ``method``, ``gap``, ``accuracy``, ``gap_error`` and ``accuracy_error``, in hundredths, and
    ``order``, the place in the line. Panels stand side by side on the same scales.
    """
    alt = altair()
    ends = [(name, end, sign) for name in ("gap", "accuracy") for end, sign in (("low", -1), ("high", 1))]
    drawn = [
        {**row, **{f"{name}_{end}": row[name] + sign * _or_zero(row[f"{name}_error"]) for name, end, sign in ends}}
        for row in rows
    ]
    furthest = 1.04 * max(row["gap_high"] for row in drawn)
    heights = [row[f"accuracy_{end}"] for row in drawn for end in ("low", "high")]
    room = 0.05 * (max(heights) - min(heights) or 1.0)
    x_scale = alt.Scale(domain=[0, furthest], nice=False)
    y_scale = alt.Scale(domain=[min(heights) - room, max(heights) + room], nice=False)
    within = [tolerance for tolerance in tolerances if 100 * tolerance < furthest]
    marks = [{"t": 100 * tolerance, "label": f"δ = {100 * tolerance:g}"} for tolerance in within]
    x = alt.X("gap:Q", title=f"{gap}, %", scale=x_scale)
    y = alt.Y("accuracy:Q", title="test accuracy, %", scale=y_scale)
    panels = []
    for panel in dict.fromkeys(row["panel"] for row in drawn):
        inside = [row for row in drawn if row["panel"] == panel]
        names = list(dict.fromkeys(row["method"] for row in inside))
        colours, shapes = zip(*_marks(names), strict=True)
        legend = alt.Legend(title=None, orient="bottom", columns=2)
        # The same field, order and legend in both: Vega then draws one legend with the marks of the plot.
        colour = alt.Color("method:N", scale=alt.Scale(domain=names, range=list(colours)), legend=legend)
        shape = alt.Shape("method:N", scale=alt.Scale(domain=names, range=list(shapes)), legend=legend)
        plain = alt.Chart(alt.InlineData(inside)).encode(color=colour)
        layers = (
            alt.Chart(alt.InlineData(marks))
            .mark_rule(color=SOFT, strokeDash=[2, 3], opacity=0.7)
            .encode(x=alt.X("t:Q", title=f"{gap}, %", scale=x_scale))
            + alt.Chart(alt.InlineData(marks))
            .mark_text(color=SOFT, fontSize=10, align="left", baseline="top", dx=3)
            .encode(x=alt.X("t:Q", scale=x_scale), y=alt.value(0), text="label:N")
            + plain.mark_line(strokeWidth=1.2, opacity=0.7).encode(x=x, y=y, order="order:Q")
            + plain.mark_rule(opacity=0.35).encode(x=alt.X("gap_low:Q", scale=x_scale), x2="gap_high:Q", y=y)
            + plain.mark_rule(opacity=0.35).encode(x=x, y=alt.Y("accuracy_low:Q", scale=y_scale), y2="accuracy_high:Q")
            + plain.mark_point(filled=True, size=50, opacity=1).encode(x=x, y=y, shape=shape)
        )
        panels.append(layers.properties(width=440, height=440, title=panel))
    return alt.hconcat(*panels, spacing=24).resolve_scale(color="independent", shape="independent")


def curves(
    rows: Sequence[Mapping[str, Any]],
    *,
    x: str,
    panels: Sequence[str],
    log_x: bool = False,
    log_y: Sequence[str] = (),
    x_format: str = "",
) -> Any:
    """Return one panel for each quantity: its mean against x, a line for each series, whiskers of one error.

    Rows have ``panel``, ``series``, ``x``, ``y`` and ``error``. ``log_y`` names the panels whose y is logarithmic.
    """
    alt = altair()
    names = list(dict.fromkeys(row["series"] for row in rows))
    colour = alt.Color(
        "series:N",
        sort=names,
        title=None,
        scale=alt.Scale(domain=names, range=_colours(len(names))),
    )
    places = sorted({row["x"] for row in rows})
    axis = alt.Axis(values=places, format=x_format) if log_x else alt.Axis(tickCount=6)
    drawn = []
    for panel in panels:
        points = [row for row in rows if row["panel"] == panel]
        ends = [(row, row["y"] - _or_zero(row["error"]), row["y"] + _or_zero(row["error"])) for row in points]
        whiskers = [{**row, "low": low, "high": high} for row, low, high in ends if panel not in log_y or low > 0.0]
        across = alt.X("x:Q", title=x, scale=_scale(alt, log_x), axis=axis)
        up, grid = _scale(alt, panel in log_y), alt.Axis(tickCount=4)
        y = alt.Y("y:Q", title=panel, scale=up, axis=grid)
        plain = alt.Chart(alt.InlineData(points)).encode(x=across, y=y, color=colour)
        spans = alt.Chart(alt.InlineData(whiskers)).mark_rule(opacity=0.5)
        layers = (
            plain.mark_line(strokeWidth=1.5)
            + spans.encode(x=across, y=alt.Y("low:Q", title=panel, scale=up, axis=grid), y2="high:Q", color=colour)
            + plain.mark_point(filled=True, size=30, opacity=1)
        )
        drawn.append(layers.properties(width=300, height=230))
    return alt.hconcat(*drawn, spacing=28)


def _scale(alt: Any, log: bool) -> Any:
    return alt.Scale(type="log", nice=False, padding=8) if log else alt.Scale(zero=False, nice=False, padding=8)


def _shorter(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _colours(n: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(n)]


def _marks(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the colour and the shape of each method; those without a fixed mark get an unused one."""
    taken = [MARKS[name] for name in names if name in MARKS]
    free = iter([pair for pair in zip(COLOURS, SHAPES, strict=True) if pair not in taken])
    return [MARKS[name] if name in MARKS else next(free) for name in names]


def _or_zero(value: float | None) -> float:
    return 0.0 if value is None or value != value else float(value)
