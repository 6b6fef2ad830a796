"""Intervals and bounds for rates and their differences."""
