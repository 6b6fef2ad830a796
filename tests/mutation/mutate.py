"""Break one line of the core at a time and see whether the tests notice: ``make mutants``.

Each mutant is one small change (a comparison, an operator, a constant, a condition, a returned value) in a copy of the
sources, tested with the tests that are meant to hold that file. A mutant that every test survives is printed with
its line: either a test is missing, or the change means nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    "rules/criterion.py": ["tests/rules/test_criteria.py", "tests/rules/test_learn.py"],
    "rules/parities.py": ["tests/rules/test_criteria.py", "tests/rules/test_learn.py"],
    "rules/rate_bounds.py": ["tests/rules/test_criteria.py", "tests/rules/test_learn.py"],
    "rules/scores.py": ["tests/rules/test_scores.py", "tests/rules/test_rule.py"],
    "rules/rule.py": ["tests/rules/test_rule.py", "tests/rules/test_scores.py"],
    "search/problem.py": ["tests/search"],
    "search/sweep.py": [
        "tests/search/kernels/test_sweep.py",
        "tests/search/test_algorithms.py",
        "tests/search/test_certified.py",
    ],
    "search/threshold.py": ["tests/search/test_certified.py", "tests/search/test_algorithms.py"],
    "search/directions.py": ["tests/search/test_algorithms.py", "tests/search/test_certified.py"],
    "search/lines.py": ["tests/search/test_algorithms.py", "tests/search/test_certified.py"],
    "search/dual.py": ["tests/search/test_algorithms.py"],
    "search/closest.py": ["tests/search/test_algorithms.py", "tests/rules/test_learn.py"],
    "search/certified.py": ["tests/search/test_certified.py", "tests/search/test_reduction.py"],
    "search/reduction.py": ["tests/search/test_reduction.py"],
    "search/smoothed.py": ["tests/search/test_smoothed.py"],
    "search/augmented.py": ["tests/search/test_smoothed.py"],
    "search/coincidence.py": ["tests/search/test_ties.py"],
    "search/arrangement.py": ["tests/search/test_certified.py", "tests/search/test_reduction.py"],
    "search/budget.py": ["tests/search/test_certified.py"],
    "search/stack.py": ["tests/search/test_certified.py", "tests/search/test_reduction.py"],
    "search/excerpts.py": ["tests/search/test_smoothed.py"],
    "search/kernels/ladder.py": ["tests/search/kernels/test_ladder.py", "tests/search/test_certified.py"],
    "search/kernels/sweep.py": ["tests/search/kernels/test_sweep.py", "tests/search/test_algorithms.py"],
    "search/kernels/planes.py": ["tests/search/kernels/test_planes.py", "tests/search/test_certified.py"],
    "search/kernels/margin.py": ["tests/search/kernels/test_planes.py"],
    "search/kernels/bundles.py": ["tests/search/kernels/test_bundles.py", "tests/search/test_certified.py"],
    "search/kernels/boxes.py": ["tests/search/kernels/test_boxes.py", "tests/search/test_certified.py"],
    "search/kernels/leaves.py": ["tests/search/kernels/test_leaves.py", "tests/search/test_certified.py"],
    "search/kernels/branch.py": [
        "tests/search/kernels/test_branch.py",
        "tests/search/test_certified.py",
        "tests/search/test_reduction.py",
    ],
}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
               ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
             ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node can be replaced by, with a word on it."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        changed = copy.deepcopy(node)
        changed.ops[0] = COMPARISONS[type(node.ops[0])]()
        yield "comparison", changed
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        changed = copy.deepcopy(node)
        changed.op = OPERATORS[type(node.op)]()
        yield "operator", changed
    elif isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "sign", copy.deepcopy(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = (not node.value) if isinstance(node.value, bool) else node.value + 1
        yield "constant", ast.Constant(value)
    elif isinstance(node, ast.If):
        changed = copy.deepcopy(node)
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield "condition", changed


def mutants(source: str) -> list[tuple[int, str, str]]:
    """Return (line, kind, the whole source with the change) for every change of a file."""
    tree = ast.parse(source)
    ignored = {
        id(inner)
        for node in ast.walk(tree)
        for inner in ast.walk(node)
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr))
        or (isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"njit", "InputError", "field"})
        or (isinstance(node, ast.AnnAssign) and inner is not node and inner is not node.value)
        or (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING")
    }
    annotations = {id(inner) for node in ast.walk(tree) for part in _annotations(node) for inner in ast.walk(part)}
    found = []
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in ignored or id(node) in annotations or not hasattr(node, "lineno"):
            continue
        for kind, _ in changes(node):
            fresh = ast.parse(source)
            target = next(other for position, other in enumerate(ast.walk(fresh)) if position == index)
            changed = next(new for word, new in changes(target) if word == kind)
            replaced = _Replace(target, changed).visit(fresh)
            found.append((node.lineno, kind, ast.unparse(ast.fix_missing_locations(replaced))))
    return found


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        part = getattr(node, name, None)
        if part is not None:
            yield part


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST) -> None:
        self.target, self.new = target, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.target else super().visit(node)


def survives(place: Path, file: str, source: str, seconds: float) -> bool:
    """Tell whether every test passes with the changed file."""
    path = place / "evenhand" / file
    original = path.read_text()
    path.write_text(source)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider",
               *(str(ROOT / test) for test in TESTS[file])]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1",
                   "NUMBA_CACHE_DIR": str(place / "numba")}  # fmt: skip
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds, check=False)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_text(original)


def main() -> int:
    """Print the survivors, and how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", choices=sorted(TESTS), action="append")
    parser.add_argument("--sample", type=int, default=12, help="mutants of each file, drawn at random; 0 is all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="a mutant that takes longer counts as noticed")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that are tested at the same time")
    options = parser.parse_args()
    killed = total = 0
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(options.jobs) as pool:
        places = [Path(directory) / str(job) for job in range(options.jobs)]
        for place in places:
            shutil.copytree(ROOT / "src" / "evenhand", place / "evenhand", ignore=shutil.ignore_patterns("__pycache__"))
        for file in options.file or TESTS:
            source = (ROOT / "src" / "evenhand" / file).read_text()
            started = time.monotonic()
            if not all(pool.map(lambda place: survives(place, file, source, 900.0), places)):  # noqa: B023
                print(f"{file}: its tests fail without any change")
                return 2
            found = mutants(source)
            drawn = random.Random(options.seed).sample(found, min(options.sample or len(found), len(found)))
            drawn.sort(key=lambda mutant: mutant[0])
            free = list(places)

            def alive(mutant: tuple[int, str, str], free: list[Path] = free, file: str = file) -> bool:
                place = free.pop()
                try:
                    return survives(place, file, mutant[2], options.seconds)
                finally:
                    free.append(place)

            lines, survivors = source.splitlines(), 0
            for (line, kind, _), survived in zip(drawn, pool.map(alive, drawn), strict=True):
                survivors += survived
                if survived:
                    print(f"{file}:{line}: {kind} survives: {lines[line - 1].strip()}", flush=True)
            killed, total = killed + len(drawn) - survivors, total + len(drawn)
            print(f"{file}: {len(drawn) - survivors} of {len(drawn)} killed (of {len(found)} possible), "
                  f"{time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
    print(f"{killed} of {total} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
