from __future__ import annotations

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "command_line_page.py"


def test_the_page_of_the_command_line_is_made_from_the_commands():
    specification = importlib.util.spec_from_file_location("command_line_page", TOOL)
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), "run python tools/command_line_page.py"
