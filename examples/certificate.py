"""A certificate: boxes that cover all rules, and the reason why none of them contains a better one."""

import altair as alt
import numpy as np

import evenhand as eh
from drawing import AFTER, BEFORE, WARM, save

REASONS = {0: "no feasible rule", 1: "no better rule", "cells": "few cells, all looked at"}


def boxes_of(nodes, low, high):
    """Yield the boxes of a face that are not halved, with the reason."""
    waiting, nodes = [(low, high)], iter(nodes)
    while waiting:
        low, high = waiting.pop()
        node = next(nodes)
        if isinstance(node, int):
            middle = 0.5 * (low[node] + high[node])
            first, second = high.copy(), low.copy()
            first[node] = second[node] = middle
            waiting += [(second, high), (low, first)]
        else:
            yield low, high, REASONS[node[1] if node[0] == "bound" else "cells"]


def pictures():
    data = eh.datasets.make_zafar(2000, random_state=0)
    rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="eo", tolerance=0.05)
    proof = rule.solution_.certificate()
    middle = np.array([1.0, -1.0, -1.0]), np.array([1.0, 1.0, 1.0])
    rows = [
        {"a": low[1], "b": high[1], "c": low[2], "d": high[2], "why": why}
        for low, high, why in boxes_of(proof.faces[-1], *middle)
    ]
    scale = proof.claim["scale"]
    x, y = (alt.Scale(domain=[-0.16, 0.16], nice=False) for _ in range(2))
    colours = alt.Scale(domain=list(REASONS.values()), range=[BEFORE, AFTER, WARM])
    boxes = alt.Chart(alt.InlineData(rows)).mark_rect(stroke="white", strokeWidth=0.4, opacity=0.75, clip=True)
    boxes = boxes.encode(
        x=alt.X("a:Q", title="z of the true positive rates, scaled", scale=x),
        x2="b:Q",
        y=alt.Y("c:Q", title="z of the false positive rates, scaled", scale=y),
        y2="d:Q",
        color=alt.Color("why:N", title=None, scale=colours),
    )
    place = [{"a": z * s, "c": w * t} for z, s, w, t in [(rule.z[0], scale[0], rule.z[1], scale[1])]]
    optimum = alt.Chart(alt.InlineData(place)).mark_point(size=60, color="black")
    return {"certificate": (boxes + optimum.encode(x="a:Q", y="c:Q")).properties(width=420, height=420)}


if __name__ == "__main__":
    save(pictures())
