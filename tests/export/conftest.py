from __future__ import annotations

from scored_rows import spark

__all__ = ["spark"]
