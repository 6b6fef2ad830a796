"""How rules, mixtures and frontiers are displayed. Nothing is computed here."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from evenhand.display import Description, Table
from evenhand.figures import Figure, altair
from evenhand.text import short_name

if TYPE_CHECKING:
    from evenhand.rules.frontier import Frontier
    from evenhand.rules.mixture import Mixture
    from evenhand.rules.receipt import Receipt
    from evenhand.rules.rule import Rule


def asked(rule: Rule | Mixture) -> str:
    """Return a rule's criterion and tolerance."""
    criterion = "by hand" if rule.criterion is None else type(rule.criterion).__name__
    return criterion if rule.tolerance is None else f"{criterion}, tolerance {rule.tolerance:g}"


def describe_rule(rule: Rule) -> Description:
    """Describe a rule: its decisions, its quality if known, and its terms."""
    groups = "; ".join(f"{name}: {', '.join(short_name(g) for g in members)}" for name, members in rule.groups.items())
    parts: list[str | Table] = [
        f"Decides between {rule.classes[0]} and {rule.classes[1]}, the positive label. {groups}"
    ]
    if rule.solution is not None:
        parts.append(rule.solution.sentence)
    rows = tuple((term.name, f"{term.z:+.6g}") for term in rule.terms)
    parts.append(Table(("what is compared", "weight z"), rows))
    parts.append("The decision is positive if the margin, minus each comparison times its z, is above 0.")
    return Description(f"Rule: {asked(rule)}", parts)


def describe_mixture(mixture: Mixture) -> Description:
    """Describe a mixture: the number of its rules, and each with its weight and z."""
    rows = tuple(
        (str(place), f"{weight:.4f}", ", ".join(f"{term.z:+.4g}" for term in rule.terms))
        for place, (weight, rule) in enumerate(zip(mixture.weights, mixture.rules, strict=True))
    )
    parts: list[str | Table] = [
        f"Decides between {mixture.classes[0]} and {mixture.classes[1]} by a randomly drawn rule."
    ]
    if mixture.solution is not None:
        parts.append(mixture.solution.sentence)
    return Description(
        f"Mixture of {len(mixture.rules)} rules: {asked(mixture)}",
        [*parts, Table(("rule", "probability", "z"), rows)],
    )


def describe_frontier(curve: Frontier) -> Description:
    """Describe a frontier: the model alone, and one line for each rule."""
    names = ("tolerance", "utility", "gap", "upper_bound")
    rows = tuple(tuple(f"{getattr(point, name):.4f}" for name in names) for point in curve)
    parts: list[str | Table] = [
        f"The model alone has utility {curve.base_utility:.4f} and a gap of {curve.base_gap:.4f}.",
        Table(("tolerance", "utility", "gap", "no rule exceeds"), rows, names=0),
    ]
    for text, values in (("No rule meets", curve.unreachable), ("No rule was found for", curve.not_found)):
        if values:
            parts.append(f"{text} a tolerance of {', '.join(f'{value:g}' for value in values)}.")
    return Description(f"Frontier: {len(curve)} rules", parts)


def draw_frontier(curve: Frontier) -> Figure:
    """Return a chart of utility against tolerance, with the model alone as a point."""
    alt = altair("Frontier.plot")
    rows = [{"tolerance": p.tolerance, "utility": p.utility, "gap": p.gap, "upper bound": p.upper_bound} for p in curve]
    scale = alt.Scale(zero=False)
    line = (
        alt.Chart(alt.InlineData(rows))
        .mark_line(point={"filled": True, "color": "var(--accent)"}, color="var(--accent)")
        .encode(
            x=alt.X("tolerance:Q", title="tolerance (largest allowed difference)"),
            y=alt.Y("utility:Q", title="utility", scale=scale),
            tooltip=[alt.Tooltip(f"{name}:Q", format=".4f") for name in ("tolerance", "utility", "gap")],
        )
    )
    alone = [{"gap": curve.base_gap, "utility": curve.base_utility, "name": "the model alone"}]
    base = alt.Chart(alt.InlineData(alone)).encode(x="gap:Q", y=alt.Y("utility:Q", scale=scale), tooltip=["name:N"])
    mark = base.mark_point(shape="diamond", size=90, filled=True, color="var(--bad)", opacity=1)
    text = base.mark_text(align="right", dx=-8, dy=-10, color="var(--soft)").encode(text="name:N")
    return Figure(line + mark + text, "The price of fairness")


def draw_receipt(receipt: Receipt) -> Figure:
    """Return a chart of how the model's probability becomes the decision, comparison by comparison."""
    alt = altair("Receipt.plot")
    threshold = receipt.probability - receipt.margin / receipt.slope
    reached = list(itertools.accumulate([receipt.probability, *(a / receipt.slope for a in receipt.terms.values())]))
    ends = [threshold, *reached]
    low, high = 100 * min(ends) - 5, 100 * max(ends) + 5
    at = receipt.probability
    rows: list[dict[str, Any]] = [{"what": "the model", "from": low, "to": 100 * at, "kind": "total"}]
    for name, amount in receipt.terms.items():
        after = at + amount / receipt.slope
        kind = "raises" if after >= at else "lowers"
        rows.append({"what": short_name(name), "from": 100 * at, "to": 100 * after, "kind": kind})
        at = after
    rows.append({"what": "together", "from": low, "to": 100 * at, "kind": "total"})
    order = [row["what"] for row in rows]
    colours = alt.Scale(domain=["total", "raises", "lowers"], range=["var(--edge)", "var(--g0)", "var(--g1)"])
    bars = (
        alt.Chart(alt.InlineData(rows))
        .mark_bar(height=16)
        .encode(
            x=alt.X("from:Q", title="probability, %", scale=alt.Scale(domain=[low, high], nice=False)),
            x2="to:Q",
            y=alt.Y("what:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("kind:N", scale=colours, legend=None),
        )
    )
    line = alt.Chart(alt.InlineData([{"x": 100 * threshold}])).mark_rule(color="var(--ink)", strokeDash=[4, 4])
    title = f"Why {receipt.decision}: above the dashed line a decision is positive"
    return Figure(bars + line.encode(x="x:Q"), title, height=34 * len(rows), left=60)
