"""SQL dialects: how an engine spells numbers, names and texts. ``Rule.to_sql`` writes a rule in one of them."""

from evenhand.rules.sql import DIALECTS, Dialect

__all__ = ["DIALECTS", "Dialect"]
