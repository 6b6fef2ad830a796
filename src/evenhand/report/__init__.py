"""The report: a result summarised as plain data, then rendered as one HTML file that needs nothing else.

:func:`summarize` computes and knows nothing of HTML; :func:`render_html` writes and computes nothing.
"""

from evenhand.report.render import render_html, write_report
from evenhand.report.summarize import SCHEMA, summarize

__all__ = ["SCHEMA", "render_html", "summarize", "write_report"]
