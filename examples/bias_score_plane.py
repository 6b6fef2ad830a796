"""The paper's picture: people of Adult at their two bias scores, and the line beyond which a decision is flipped."""

import altair as alt
import numpy as np

from adult import fitted
from drawing import AFTER, BEFORE, WARM, save

SHOWN = 20.0


def pictures():
    fair, people = fitted()
    rule, sample = fair.rule_, people.X[:2500]
    scores = fair.bias_scores(sample)
    flipped = fair.predict(sample) != (fair.predict_proba(sample)[:, 1] > 0.5)
    inside = np.abs(scores).max(axis=1) < SHOWN
    rows = [
        {"s1": s1, "s2": s2, "decision": "flipped" if turned else "kept"}
        for (s1, s2), turned in zip(scores[inside].round(3).tolist(), flipped[inside].tolist(), strict=True)
    ]
    z1, z2 = rule.z
    ends = [{"s1": s, "s2": (1.0 - z1 * s) / z2} for s in np.linspace(-SHOWN, SHOWN, 200)]
    axis = alt.Scale(domain=[-SHOWN, SHOWN])
    points = (
        alt.Chart(alt.InlineData(rows))
        .mark_circle(size=16, opacity=0.6)
        .encode(
            x=alt.X("s1:Q", scale=axis, title="bias score of the false positive rates"),
            y=alt.Y("s2:Q", scale=axis, title="bias score of the true positive rates"),
            color=alt.Color(
                "decision:N", scale=alt.Scale(domain=["kept", "flipped"], range=[BEFORE, WARM]), title="the decision is"
            ),
        )
    )
    line = alt.Chart(alt.InlineData([end for end in ends if abs(end["s2"]) <= SHOWN]))
    return {"bias-score-plane": (points + line.mark_line(color=AFTER).encode(x="s1:Q", y="s2:Q")).properties(width=420)}


if __name__ == "__main__":
    save(pictures())
