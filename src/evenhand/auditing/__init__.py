"""Audits of decisions: rates, gaps and verdicts."""
