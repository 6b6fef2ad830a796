"""The report: a result summarised as plain data, then rendered as one self-contained HTML file.

:func:`summarize` computes and does not depend on HTML; :func:`render_html` writes and computes nothing.
"""

from evenhand.report.card import model_card, rule_card
from evenhand.report.render import render_html, write_report
from evenhand.report.result import Report
from evenhand.report.standards import write_standard
from evenhand.report.summarize import SCHEMA, summarize
from evenhand.report.watching import write_watch

__all__ = [
    "SCHEMA",
    "Report",
    "model_card",
    "render_html",
    "rule_card",
    "summarize",
    "write_report",
    "write_standard",
    "write_watch",
]
