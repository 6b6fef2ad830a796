"""Fairness metrics of decisions: functions with fairlearn's names and numbers, and those of other sources."""

from evenhand.auditing.metrics import *  # noqa: F403
from evenhand.auditing.metrics import __all__ as __all__
