"""A FastAPI service behind an existing model: its probabilities in, fair decisions and receipts out.

On 127.0.0.1:
``EVENHAND_RULE=served/rule.json uvicorn --app-dir examples/serving --factory rule_service:from_environment``
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from reasons import answer_with_reasons

import evenhand as eh

MOST_ROWS = 10_000
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class Scores(BaseModel):
    """Rows with their probabilities: of the positive label, and of each group, in the rule's order."""

    p_y: Annotated[list[Probability], Field(min_length=1, max_length=MOST_ROWS)]
    p_group: list[list[Probability]]


class Decisions(BaseModel):
    """The decision and the fair margin of each row; the decision is positive iff its margin is above 0."""

    decision: list[Any]
    fair_margin: list[float]


def make_app(rule: eh.Rule) -> FastAPI:
    """Return the service of one rule."""
    app = FastAPI(title="Fair decisions")
    answer_with_reasons(app)

    def arrays(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
        try:
            return np.array(scores.p_y), np.array(scores.p_group, dtype=float)
        except ValueError as error:
            raise HTTPException(422, f"p_group must have the same number of columns in each row: {error}") from None

    @app.get("/rule")
    def about() -> dict[str, Any]:
        return {"groups": rule.groups, "labels": list(rule.classes), "tolerance": rule.tolerance}

    @app.post("/decide")
    def decide(scores: Scores) -> Decisions:
        try:
            margin = rule.decision_function(*arrays(scores))
        except eh.InputError as error:
            raise HTTPException(422, str(error)) from None
        return Decisions(decision=[rule.classes[int(m > 0.0)] for m in margin], fair_margin=margin.tolist())

    @app.post("/explain")
    def explain(scores: Scores) -> list[str]:
        try:
            return [str(receipt) for receipt in rule.explain(*arrays(scores))]
        except eh.InputError as error:
            raise HTTPException(422, str(error)) from None

    return app


def from_environment() -> FastAPI:
    """Return the service of the rule that the environment names."""
    return make_app(eh.Rule.from_json(Path(os.environ["EVENHAND_RULE"]).read_text(encoding="utf-8")))
