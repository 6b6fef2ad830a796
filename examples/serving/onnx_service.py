"""A FastAPI service of a whole classifier as ONNX: features in, decisions out. evenhand is not needed here.

On 127.0.0.1:
``EVENHAND_MODEL=served/fair.onnx uvicorn --app-dir examples/serving --factory onnx_service:from_environment``
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from reasons import answer_with_reasons

MOST_ROWS = 10_000
Number = Annotated[float, Field(allow_inf_nan=False)]


class Rows(BaseModel):
    """The features of each row, in the order of training."""

    X: Annotated[list[list[Number]], Field(min_length=1, max_length=MOST_ROWS)]


def make_app(path: str | Path) -> FastAPI:
    """Return the service of one ONNX file whose input is a matrix of doubles."""
    app = FastAPI(title="Fair decisions")
    answer_with_reasons(app)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    width = session.get_inputs()[0].shape[1]

    @app.post("/decide")
    def decide(rows: Rows) -> dict[str, list[Any]]:
        if any(len(row) != width for row in rows.X):
            raise HTTPException(422, f"Each row needs {width} features.")
        found = session.run(None, {"X": np.array(rows.X, dtype=np.float64)})
        numbers = (values.reshape(len(rows.X), -1) for values in found if values.dtype.kind == "f")
        bad = ~np.all([np.isfinite(values).all(axis=1) for values in numbers], axis=0)
        if bad.any():
            raise HTTPException(
                422, f"The model gives no number for row {int(np.argmax(bad))}: are its features right?"
            )
        return {name: values.tolist() for name, values in zip(names, found, strict=True)}

    return app


def from_environment() -> FastAPI:
    """Return the service of the file that the environment names."""
    return make_app(os.environ["EVENHAND_MODEL"])
