"""The report's charts: Altair specifications, converted to static SVG whose colours are CSS variables.

A chart that depends on the tolerance contains all steps at once: the marks of one step have ``data-step``, and the page
shows those of the chosen step. So nothing is computed in the browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evenhand import figures
from evenhand.report import figure_data

COLOURS = tuple(f"var(--g{i})" for i in range(6))
_MARKS = re.compile(r'<g class="mark-\w+ role-mark ([a-z_]+)_marks"[^>]*>(.*?)</g>', re.DOTALL)


def altair() -> Any:
    """Return the drawing package, or raise an error that says what to install."""
    return figures.altair("The report")


def to_svg(chart: Any, title: str, *, width: int, height: int, chosen: int | None = None) -> str:
    """Return a chart as SVG with a title, its marks numbered by step, those of the chosen step marked.

    Layers whose name begins with ``step`` have one mark for each step, in order.
    """
    svg = figures.to_svg(chart, title, width=width, height=height)
    counters: dict[str, int] = {}
    return _MARKS.sub(lambda found: _number(found, chosen, counters), svg)


def _number(found: re.Match[str], chosen: int | None, counters: dict[str, int]) -> str:
    """Write the step into each mark of a layer; a line is a separate group, so the count continues."""
    layer = found.group(1)
    if not layer.startswith("step"):
        return found.group(0)

    def tag(mark: re.Match[str]) -> str:
        step = counters.get(layer, 0)
        counters[layer] = step + 1
        return f'<{mark.group(1)} data-step="{step}" class="at{" chosen" if step == chosen else ""}"'

    return re.sub(r"<(path|line|rect)(?= )", tag, found.group(0))


def _data(alt: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    return alt.InlineData(list(rows))


def frontier_charts(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return two charts over the tolerance: the accuracy, and the remaining gap, with intervals."""
    alt = altair()
    steps, base = summary["steps"], summary["base"]
    rows = []
    for step in steps:
        gap = step["verdicts"][step["largest"]]["gap"]
        rows.append(
            {
                "t": 100 * step["step_tolerance"],
                **{f"a{end}": _hundred(step["accuracy"][name]) for end, name in _ENDS},
                **{f"g{end}": _hundred(gap[name]) for end, name in _ENDS},
            }
        )
    furthest = max(row["t"] for row in rows) or 1.0
    x = alt.X("t:Q", title="tolerance, in percentage points", scale=alt.Scale(domain=[0, furthest], nice=False))
    data = _data(alt, rows)
    most = max([row["gu"] or 0.0 for row in rows] + [furthest])

    def layers(prefix: str, title: str, domain: list[float], reference: Any) -> Any:
        y = alt.Y(f"{prefix}v:Q", title=title, scale=alt.Scale(domain=domain, nice=False, zero=False))
        plain = alt.Chart(data).encode(x=x)
        band = plain.mark_area(color="var(--accent)", opacity=0.14).encode(
            y=alt.Y(f"{prefix}l:Q", title=title, scale=alt.Scale(domain=domain, nice=False, zero=False)),
            y2=f"{prefix}u:Q",
        )
        line = plain.mark_line(color="var(--accent)", strokeWidth=1.5).encode(y=y)
        points = (
            alt.Chart(data, name=f"step_{prefix}")
            .mark_point(filled=True, size=56, color="var(--accent)", opacity=1)
            .encode(x=x, y=y)
        )
        return band + reference + line + points

    accuracy = 100 * base["accuracy"]["value"]
    lows = [row["al"] for row in rows] + [accuracy]
    highs = [row["au"] for row in rows] + [accuracy]
    margin = 0.08 * (max(highs) - min(lows) or 1.0)
    flat = (
        alt.Chart(_data(alt, [{"t": 0, "t2": furthest, "y": accuracy}]))
        .mark_rule(color="var(--soft)", strokeDash=[4, 4])
        .encode(x="t:Q", x2="t2:Q", y="y:Q")
    )
    diagonal = (
        alt.Chart(_data(alt, [{"t": 0, "t2": furthest, "y": 0, "y2": furthest}]))
        .mark_rule(color="var(--soft)", strokeDash=[4, 4])
        .encode(x="t:Q", x2="t2:Q", y="y:Q", y2="y2:Q")
    )
    domain = [min(lows) - margin, max(highs) + margin]
    return [
        {
            "svg": to_svg(
                layers("a", "accuracy, %", domain, flat),
                "Accuracy at each tolerance, with its interval",
                width=330,
                height=220,
                chosen=summary["chosen"],
            ),
            "caption": "Accuracy at each tolerance. The dashed line is the model alone.",
        },
        {
            "svg": to_svg(
                layers("g", "largest gap, points", [0, most * 1.04], diagonal),
                "The remaining gap at each tolerance",
                width=330,
                height=220,
                chosen=summary["chosen"],
            ),
            "caption": "The gap on these rows. Below the dashed line it is within the tolerance.",
        },
    ]


_ENDS = (("v", "value"), ("l", "lower"), ("u", "upper"))


def _hundred(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 4)


def _colour(alt: Any, names: Sequence[str], first: str | None = None) -> Any:
    colours = [*([] if first is None else [first]), *COLOURS, *COLOURS[:1] * len(names)][: len(names)]
    return alt.Color("group:N", sort=None, scale=alt.Scale(domain=list(names), range=colours))


def bias_chart(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the chart of the bias scores: ``svgs`` has one for all steps, or one for each step."""
    picture = summary["bias"]
    if picture is None:
        return None
    alt = altair()
    draw = {"plane": _plane, "histogram": _histogram, "projection": _projection}[picture["kind"]]
    return {"kind": picture["kind"], "svgs": draw(alt, picture, summary["chosen"])}


def _plane(alt: Any, picture: Mapping[str, Any], chosen: int) -> list[str]:
    width, height = picture["limits"]
    names = picture["groups"]
    points = [{"x": x, "y": y, "group": names[code] if code >= 0 else "unknown"} for x, y, code in picture["points"]]
    shown = [*names, "unknown"] if any(code < 0 for _, _, code in picture["points"]) else names
    first, second = (short_term(name) for name in picture["terms"])
    axes = []
    for letter, term, limit, soft in zip("xy", (first, second), picture["limits"], picture["softness"], strict=True):
        scale = alt.Scale(type="symlog", constant=soft, domain=[-limit, limit], nice=False)
        axis = alt.Axis(values=_round_numbers(limit, soft), format=",.6~f")
        axes.append(
            (alt.X if letter == "x" else alt.Y)(f"{letter}:Q", title=f"score of {term}", scale=scale, axis=axis)
        )
    x, y = axes
    dots = (
        alt.Chart(_data(alt, points))
        .mark_circle(size=14, opacity=0.55, clip=True)
        .encode(x=x, y=y, color=_colour(alt, shown))
    )
    # A step whose line is not visible still needs its mark: a path without length.
    traced = [line if line else [[0.0, 0.0], [0.0, 0.0]] for line in picture["lines"]]
    ends = [{"x": a, "y": b, "step": i, "o": o} for i, line in enumerate(traced) for o, (a, b) in enumerate(line)]
    rules = (
        alt.Chart(_data(alt, ends), name="step_line")
        .mark_line(color="var(--ink)", strokeWidth=2, clip=True)
        .encode(x=x, y=y, detail=alt.Detail("step:O"), order="o:Q")
    )
    across = [
        {"x": -width, "x2": width, "y": 0.0, "y2": 0.0},
        {"x": 0.0, "x2": 0.0, "y": -height, "y2": height},
    ]
    zero = alt.Chart(_data(alt, across)).mark_rule(color="var(--edge)").encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    title = "Bias scores of a sample of rows, and the line of the rule"
    return [to_svg(zero + dots + rules, title, width=420, height=360, chosen=chosen)]


def _round_numbers(limit: float, soft: float) -> list[float]:
    """Return the powers of ten within an axis that are far enough from 0 to fit their labels."""
    sizes = [10.0**exponent for exponent in range(-6, 9) if 0.9 * soft <= 10.0**exponent <= limit]
    return [*(-size for size in reversed(sizes)), 0.0, *sizes]


def _histogram(alt: Any, picture: Mapping[str, Any], chosen: int) -> list[str]:
    edges = picture["edges"]
    rows = [
        {"x": low, "x2": high, "y": 100 * share, "group": name}
        for name, shares in zip(picture["groups"], picture["shares"], strict=True)
        for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
    ]
    scale = alt.Scale(domain=[edges[0], edges[-1]], nice=False)
    bars = (
        alt.Chart(_data(alt, rows))
        .mark_bar(opacity=0.5)
        .encode(
            x=alt.X("x:Q", bin="binned", title=f"score of {short_term(picture['terms'][0])}", scale=scale),
            x2="x2:Q",
            y=alt.Y("y:Q", title="share of the group, %", stack=None),
            color=_colour(alt, picture["groups"]),
        )
    )
    places = [{"x": 0.0 if place is None else place} for place in picture["thresholds"]]
    rules = (
        alt.Chart(_data(alt, places), name="step_threshold")
        .mark_rule(color="var(--ink)", strokeWidth=2)
        .encode(x=alt.X("x:Q", scale=scale))
    )
    title = "Bias scores by group, and the threshold of the rule"
    return [to_svg(bars + rules, title, width=560, height=260, chosen=chosen)]


def _projection(alt: Any, picture: Mapping[str, Any], chosen: int) -> list[str]:
    edges = picture["edges"]
    drawn = []
    for counts in picture["counts"]:
        rows = [
            {"x": low, "x2": high, "y": count, "group": "flipped" if low >= 1.0 - 1e-9 else "kept"}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
        scale = alt.Scale(domain=[edges[0], edges[-1]], nice=False)
        bars = (
            alt.Chart(_data(alt, rows))
            .mark_bar()
            .encode(
                x=alt.X("x:Q", bin="binned", title="all bias scores, weighted by the rule", scale=scale),
                x2="x2:Q",
                y=alt.Y("y:Q", title="rows"),
                color=_colour(alt, ["kept", "flipped"]),
            )
        )
        drawn.append(
            to_svg(bars, "The weighted sum of all bias scores: above 1 a row is flipped", width=560, height=240)
        )
    return drawn


def calibration_charts(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one chart for each model: observed against predicted, for each group."""
    found = []
    for model in dict.fromkeys(curve["model"] for curve in summary["calibration"]):
        curves = [curve for curve in summary["calibration"] if curve["model"] == model and curve["bins"]]
        if curves:
            data = figure_data.calibration(curves)
            found.append({"svg": _reliability(curves[:7], model), "caption": model, "data": data})
    return found


def _reliability(curves: Sequence[Mapping[str, Any]], model: str) -> str:
    alt = altair()
    rows = [
        {
            "group": curve["group"],
            "p": row["predicted"],
            "o": row["observed"],
            "l": row["lower"],
            "u": row["upper"],
        }
        for curve in curves
        for row in curve["bins"]
    ]
    scale = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("p:Q", title="predicted", scale=scale)
    colour = _colour(
        alt,
        [curve["group"] for curve in curves],
        first="var(--ink)" if curves[0]["group"] == "everyone" else None,
    )
    plain = alt.Chart(_data(alt, rows)).encode(x=x, color=colour)
    whisker = plain.mark_rule(opacity=0.6).encode(y=alt.Y("l:Q", title="observed", scale=scale), y2="u:Q")
    points = plain.mark_point(filled=True, size=42, opacity=1).encode(y=alt.Y("o:Q", title="observed", scale=scale))
    diagonal = (
        alt.Chart(_data(alt, [{"a": 0, "b": 1}]))
        .mark_rule(color="var(--soft)", strokeDash=[4, 4])
        .encode(x=alt.X("a:Q", scale=scale), x2="b:Q", y=alt.Y("a:Q", scale=scale), y2="b:Q")
    )
    return to_svg(diagonal + whisker + points, f"Calibration of {model}", width=300, height=260)


def short_term(name: str) -> str:
    """Return a term's name without repeated words: ``rate(a=F) - rate(a=M)`` as ``a=F − a=M``."""
    return re.sub(r"rate\(((?:[^()]|\([^()]*\))*)\)", r"\1", name).replace(" - ", " − ")
