"""The reasons why a request is refused, as JSON: FastAPI's message for each mistake, without the values sent.

FastAPI's own answer repeats the values, and fails if JSON cannot represent one: NaN, infinity, half a surrogate pair.
"""

from __future__ import annotations

import json

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

MOST_REASONS = 20


def answer_with_reasons(app: FastAPI) -> None:
    """Make a service answer invalid requests with 422 and the reasons."""

    @app.exception_handler(RequestValidationError)
    def refuse(request: Request, error: RequestValidationError) -> Response:
        found = [{"loc": list(e["loc"]), "msg": e["msg"], "type": e["type"]} for e in error.errors()[:MOST_REASONS]]
        return Response(json.dumps({"detail": found}), status_code=422, media_type="application/json")
