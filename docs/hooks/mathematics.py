"""Turn the formulas of a page into MathML when the site is built: a reader needs no script and no network.

The font is STIX Two Math (SIL Open Font License), which the package ziamath carries; it is copied into the site, so
that formulas look the same on every system.
"""

from __future__ import annotations

import html
import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

FONT = "STIXTwoMath-Regular.ttf"
# What the converter takes for operators: a bar that grows and an infinity with room around it.
_REPAIRS = (
    (re.compile(r"<mo[^>]*>(&#x0007C;|\|)</mo>"), r'<mo stretchy="false" lspace="0" rspace="0">|</mo>'),
    (re.compile(r"<mo>(&#x0221E;|∞)</mo>"), "<mi>∞</mi>"),
)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace what the arithmatex extension marked."""

    def formula(match: re.Match[str]) -> str:
        display = "block" if match[2] == "[" else "inline"
        mathml = convert(html.unescape(match[3]), display=display)
        for pattern, repair in _REPAIRS:
            mathml = pattern.sub(repair, mathml)
        return f'<{match[1]} class="formula-{display}">{mathml}</{match[1]}>'

    return _FORMULA.sub(formula, content)


def on_post_build(config: Any, **_: Any) -> None:
    """Put the font beside the style sheet."""
    package = importlib.util.find_spec("ziamath")
    source = Path(package.origin).parent / "fonts" / FONT
    shutil.copyfile(source, Path(config.site_dir) / "stylesheets" / FONT)
