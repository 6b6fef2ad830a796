from __future__ import annotations

import pytest

from scored_rows import draw, spark

__all__ = ["spark"]


@pytest.fixture(scope="session")
def rows():
    return draw(6000)
