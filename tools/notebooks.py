"""Run the notebooks of examples/ and store their output.

``python tools/notebooks.py examples/start_here.ipynb`` executes the cells in order, as Jupyter would, and stores their
output; ``--page start.html`` also writes a page that looks as the notebook does. It needs no Jupyter.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import html
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}}
pre{{background:rgba(128,128,128,.12);padding:.8rem;overflow-x:auto}}.out pre{{background:none;padding:0}}</style>
{body}"""


def execute(notebook: dict[str, Any], folder: Path) -> None:
    """Run the code cells in one namespace, in a folder, and store the output of each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with in_folder(folder):
        count = 0
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = run_cell("".join(cell["source"]), names, count)


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Work in a folder temporarily."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_cell(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run one cell; return its printed output, and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {count}>", "exec"), names)
        if isinstance(last, ast.Expr) and not source.rstrip().endswith(";"):
            value = eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        data = {kind: lines(text) for kind, text in bundle_of(value).items()}
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return outputs


def bundle_of(value: Any) -> dict[str, str]:
    """Return the displayed forms of a value, as Jupyter requests them."""
    if hasattr(value, "_repr_mimebundle_"):
        found = value._repr_mimebundle_()
        return {kind: found[kind] for kind in ("text/plain", "text/html") if kind in found}
    shown = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_"):
        shown["text/html"] = value._repr_html_()
    return shown


def lines(text: str) -> list[str]:
    """Return text as notebooks store it."""
    return text.splitlines(keepends=True)


def as_page(notebook: dict[str, Any], title: str) -> str:
    """Return a notebook as an HTML page."""
    parts = []
    for cell in notebook["cells"]:
        source = html.escape("".join(cell["source"]))
        if cell["cell_type"] == "markdown":
            parts.append(f'<div style="white-space:pre-line">{source}</div>')
            continue
        parts.append(f"<pre>{source}</pre>")
        for output in cell["outputs"]:
            data = output.get("data", {})
            shown = "".join(data.get("text/html", []))
            plain = html.escape("".join(output.get("text", data.get("text/plain", []))))
            parts.append(f'<div class="out">{shown or f"<pre>{plain}</pre>"}</div>')
    return PAGE.format(title=html.escape(title), body="\n".join(parts))


def main() -> None:
    """Run the named notebooks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, help="also write a page of the last one")
    given = parser.parse_args()
    for path in given.notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if given.page is not None:
            given.page.write_text(as_page(notebook, path.stem), encoding="utf-8")


if __name__ == "__main__":
    main()
