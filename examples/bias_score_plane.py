"""The paper's picture: people of Adult at their two bias scores, and the line beyond which a decision is flipped."""

import altair as alt
import numpy as np

from adult import fitted
from drawing import AFTER, BEFORE, WARM, save

LEFT, RIGHT, LOW, HIGH = -15.0, 12.0, -40.0, 20.0


def pictures():
    fair, others = fitted()
    sample = others.X[:5000]
    s1, s2 = fair.bias_scores(sample).T
    flipped = fair.predict(sample) != (fair.predict_proba(sample)[:, 1] > 0.5)
    # All rows whose decision is flipped, and a fifth of the others, so that the picture stays small.
    shown = (s1 > LEFT) & (s1 < RIGHT) & (s2 > LOW) & (s2 < HIGH) & (flipped | (np.arange(len(s1)) % 5 == 0))
    rows = [
        {"s1": round(float(s1[i]), 3), "s2": round(float(s2[i]), 3), "decision": "flipped" if flipped[i] else "kept"}
        for i in np.flatnonzero(shown)
    ]
    z1, z2 = fair.rule_.z
    ends = [{"s1": (1.0 - z2 * s) / z1, "s2": s} for s in (LOW, HIGH)]
    x = alt.X("s1:Q", scale=alt.Scale(domain=[LEFT, RIGHT]), title="bias score of the false positive rates")
    y = alt.Y("s2:Q", scale=alt.Scale(domain=[LOW, HIGH]), title="bias score of the true positive rates")
    colours = alt.Scale(domain=["kept", "flipped"], range=[BEFORE, WARM])
    points = alt.Chart(alt.InlineData(rows)).mark_circle(size=18, opacity=0.6)
    points = points.encode(x=x, y=y, color=alt.Color("decision:N", scale=colours, title="the decision is"))
    line = alt.Chart(alt.InlineData(ends)).mark_line(color=AFTER, clip=True).encode(x=x, y=y)
    return {"bias-score-plane": (points + line).properties(width=420, height=300)}


if __name__ == "__main__":
    save(pictures())
