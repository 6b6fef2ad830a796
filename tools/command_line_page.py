"""Write docs/command-line.md from the commands themselves: ``python tools/command_line_page.py``."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

from evenhand.cli import make_app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
HEAD = """# Command line

Every command and its options, as `evenhand COMMAND --help` shows them. This page is made from the commands
(`python tools/command_line_page.py`). Options may also be kept in a TOML file:
`evenhand --config evenhand.toml fit ...`.
"""


def page() -> str:
    """Return the page."""
    with mock.patch("sys.argv", ["evenhand"]):  # cyclopts names the program after it
        text = make_app().generate_docs(output_format="markdown", recursive=True)
    commands = text[text.index("## evenhand demo") :]
    # The option that installs the shell's completion is not one of our commands.
    commands = re.sub(r"(?ms)^## evenhand --install-completion.*?(?=^## |\Z)", "", commands)
    # A line that is a command is shown as code.
    commands = re.sub(r"(?m)^(evenhand [^\n`]*)$(?!\n```)", r"    \1", commands)
    commands = re.sub(r"(?m)^```console\n    ", "```console\n", commands)
    return HEAD + "\n" + commands.replace("```console", "```text").strip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
