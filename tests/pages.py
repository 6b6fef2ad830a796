"""Run the examples of the documentation: each page's fenced blocks, in order, in a fresh namespace and directory.

A ``python`` block is executed. An ``output`` block after it is what the block printed, to the letter, but for the last
digits of numbers, which another processor rounds otherwise (see :func:`alike`). In a ``console``
block ``$ `` begins a command and ``> `` continues it; the other lines, if there are any, are what is printed.
A fence with ``.needs-spark`` is given a session. ``python tests/pages.py PAGE ...`` writes the output into the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[1]
# Hours of work, or files that only their own page makes: the tables there say which command made them.
NOT_RUN = {"docs/comparison.md", "docs/reproduction.md"}
_COMMAND = re.compile(r"^\$ .*\n(?:> .*\n)*", re.MULTILINE)
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)")
_OPENING = re.compile(r"^```\s*(?:\{\s*\.)?(\w*)")


def pages() -> list[str]:
    """Return every page with examples, as a path from the repository's root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    return [name for name in names if name not in NOT_RUN and any(blocks(ROOT / name))]


@dataclass
class Block:
    """A fenced block: its language, the number of its first line, and its lines."""

    language: str
    line: int
    lines: list[str]

    @property
    def text(self) -> str:
        """The block as written."""
        return "".join(line + "\n" for line in self.lines)


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that are run, and the output that follows them."""
    block = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if block is None and (opening := _OPENING.match(line)):
            block = Block(opening[1], number + 1, [])
        elif block is not None and line.startswith("```"):
            if block.language in ("python", "console", "output"):
                yield block
            block = None
        elif block is not None:
            block.lines.append(line)


def needs(page: Path) -> set[str]:
    """Return what a page's blocks are given: names after ``needs-`` in the attributes of a fence."""
    return set(re.findall(r"^```\{.*\.needs-(\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))


def run(page: Path, **given: object) -> Iterator[tuple[Block, list[str]]]:
    """Run a page in a new directory; yield each block that shows output, with the lines it should have."""
    namespace: dict[str, object] = {"__name__": "__main__", **given}
    printed = ""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), threadpool_limits(1):
        for block in blocks(page):
            if block.language == "python":
                # Padded, so that a traceback has the page's line numbers.
                code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
                with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
                    warnings.simplefilter("error")
                    exec(code, namespace)
                printed = out.getvalue()
            elif block.language == "console":
                yield block, list(_run_commands(block))
            else:
                yield block, [line.rstrip() for line in printed.rstrip().splitlines()]


def alike(shown: list[str], printed: list[str]) -> bool:
    """Tell whether two outputs have the same words, and numbers that differ by at most 1%, or 2 in the last digit."""
    if len(shown) != len(printed):
        return False
    for pair in zip(shown, printed, strict=True):
        first, second = (_NUMBER.split(" ".join(line.split())) for line in pair)
        if len(first) != len(second) or first[::2] != second[::2]:
            return False
        for one, other in zip(first[1::2], second[1::2], strict=True):
            last = 10.0 ** -len(one.partition(".")[2])
            numbers = [float(text.replace(",", "")) for text in (one, other)]
            if abs(numbers[0] - numbers[1]) > max(2.0 * last if "." in one else 0.0, 0.01 * numbers[0]) + 1e-12:
                return False
    return True


def _run_commands(block: Block) -> Iterator[str]:
    shown = any(not line.startswith(("$ ", "> ")) for line in block.lines)
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"PATH": paths, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    for lines in _COMMAND.findall(block.text):
        yield from lines.splitlines()
        command = lines.replace("\n> ", "\n").removeprefix("$ ")
        done = subprocess.run(
            command, shell=True, env=os.environ | settings, capture_output=True, text=True, check=False
        )
        # An audit that fails exits with 1, one without enough evidence with 3.
        if done.returncode not in (0, 1, 3) or "Traceback" in done.stderr:
            raise AssertionError(f"{command}\n{done.stdout}{done.stderr}")
        if shown:
            yield from (text.rstrip() for text in done.stdout.rstrip().splitlines())


def _write_output(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    given = {}
    if "spark" in needs(page):
        from pyspark.sql import SparkSession

        given["spark"] = SparkSession.builder.master("local[1]").getOrCreate()
    for block, expected in reversed(list(run(page, **given))):
        lines[block.line - 1 : block.line - 1 + len(block.lines)] = expected
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        _write_output(Path(name).resolve())
