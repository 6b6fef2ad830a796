"""Pages without a script: a template, plain data and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from evenhand.errors import MissingExtraError
from evenhand.report.render import without_control_characters


def render_page(template: str, data: Mapping[str, Any], charts: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a template filled with plain data (as ``w``) and charts (``svg`` and ``caption``) as one HTML page."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("The report", "jinja2", "report") from None
    loader = jinja2.PackageLoader("evenhand.report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = (resources.files("evenhand.report") / "templates" / "report.css").read_text(encoding="utf-8")
    page = environment.get_template(template).render(
        w=without_control_characters(data),
        charts=[{**chart, "svg": Markup(chart["svg"])} for chart in charts],
        css=Markup(style),
    )
    return str(page)
