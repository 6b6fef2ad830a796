"""Why a request is refused, as JSON: what FastAPI says of each mistake, without the values that were sent.

FastAPI's own answer repeats them, and fails where JSON has no form for one: NaN, infinity, half of a surrogate pair.
"""

from __future__ import annotations

import json

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

MOST_REASONS = 20


def answer_with_reasons(app: FastAPI) -> None:
    """Let a service answer requests that it cannot read with 422 and the reasons."""

    @app.exception_handler(RequestValidationError)
    def refuse(request: Request, error: RequestValidationError) -> Response:
        found = [{"loc": list(e["loc"]), "msg": e["msg"], "type": e["type"]} for e in error.errors()[:MOST_REASONS]]
        return Response(json.dumps({"detail": found}), status_code=422, media_type="application/json")
