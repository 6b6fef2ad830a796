"""Auditing scores of a black-box model: what more and more rows show about one gap."""

import altair as alt

import evenhand as eh
from drawing import AFTER, BEFORE, WARM, save

TOLERANCE = 0.36


def pictures():
    rows = []
    for size in (200, 500, 1000, 3000, 10_000, 30_000):
        data = eh.datasets.make_zafar(size, random_state=3, iid=True)
        found = eh.audit(data.y, data.p_y, data.group, criterion="demographic_parity", tolerance=TOLERANCE).verdicts[0]
        gap = {"gap": found.gap.value, "lower": found.gap.lower, "upper": found.gap.upper}
        rows.append({"rows": f"{size:,}", "verdict": found.outcome, **gap})
    order = [row["rows"] for row in rows]
    verdicts = alt.Scale(domain=["pass", "insufficient evidence", "fail"], range=[AFTER, BEFORE, WARM])
    chart = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("rows:N", sort=order, title="rows", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("verdict:N", scale=verdicts, title="verdict"),
    )
    y = alt.Y("lower:Q", title="difference of selection rates, 95% interval", scale=alt.Scale(zero=False))
    bars = chart.mark_rule(size=4).encode(y=y, y2="upper:Q") + chart.mark_circle(size=90, opacity=1).encode(y="gap:Q")
    limit = alt.Chart(alt.InlineData([{"tolerance": TOLERANCE}])).mark_rule(strokeDash=[4, 4]).encode(y="tolerance:Q")
    return {"audit-scores": (bars + limit).properties(width=400, height=260)}


if __name__ == "__main__":
    save(pictures())
