"""Fairness metrics: functions with fairlearn's names and values, and any metric by group."""

from evenhand.auditing import group_table as _tables
from evenhand.auditing import metrics as _rates
from evenhand.auditing.group_table import *  # noqa: F403
from evenhand.auditing.metrics import *  # noqa: F403

__all__ = [*_rates.__all__, *_tables.__all__]
