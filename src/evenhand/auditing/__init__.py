"""Rates, gaps and verdicts of decisions that were made."""
