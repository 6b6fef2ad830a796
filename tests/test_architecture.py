"""What ARCHITECTURE.md promises about the code: the direction of imports, and sizes that a reader can hold."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "evenhand"
# Each row may import from itself and from the rows before it, as in the table of ARCHITECTURE.md.
ROWS = [
    ["_version"],
    ["errors", "text", "versions", "arguments", "files", "progress", "_compiled", "_compat"],
    ["inputs"],
    [
        "rules.events",
        "rules.constraints",
        "rules.criterion",
        "rules.parities",
        "rules.rate_bounds",
        "rules.criteria",
        "rules.system",
        "rules.scores",
        "rules.strata",
    ],
    ["plausibility", "rows"],
    ["statistics"],
    ["search"],
    ["rules"],
    ["auditing"],
    ["estimator"],
    ["tables", "engines"],
    [""],
    ["paper"],
    ["io", "export"],
    ["report"],
    ["datasets", "metrics", "demo", "cli", "__main__"],
]
# Entry points whose parameters are the documented options of one call.
MANY_PARAMETERS = {
    "auditing.audit.audit",
    "rules.learn.learn_rule",
    "rules.frontier.frontier",
    "report.summarize.summarize",
    "estimator.classifier.__init__",
    "cli.fit.fit",
    "cli.audit.audit",
    "paper.models.mlp.__init__",
    "paper.models.resnet.__init__",
    "paper.baselines.park.__init__",
}


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees():
    return {name_of(path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def imports(tree):
    """Yield the modules of evenhand that a module imports, also inside functions; not those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("evenhand.") in trees() else str(node.module)
        yield from imports(node)


@cache
def graph():
    found = {}
    for name, tree in trees().items():
        inside = {x for x in imports(tree) if x == "evenhand" or x.startswith("evenhand.")}
        found[name] = {x.removeprefix("evenhand").removeprefix(".") for x in inside} - {name}
    return found


def row_of(name):
    """Return the row of the longest prefix that a row names."""
    places = {prefix: row for row, prefixes in enumerate(ROWS) for prefix in prefixes}
    known = [prefix for prefix in places if name == prefix or (prefix and name.startswith(f"{prefix}."))]
    assert known, f"{name} has no row in ARCHITECTURE.md's table"
    return places[max(known, key=len)]


def test_no_modules_import_each_other_in_a_circle():
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            path.append(name)
            for other in sorted(graph()[name]):
                visit(other)
            path.pop()
            done.add(name)

    for name in graph():
        visit(name)


def test_imports_go_one_way():
    wrong = [
        f"{name} -> {other}" for name, others in graph().items() for other in others if row_of(other) > row_of(name)
    ]
    assert wrong == []


def test_the_graph_sees_imports_inside_functions():
    assert "cli.judging" in graph()["cli.fit"]
    assert "paper.datasets" in graph()["datasets"]


def functions():
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module}.{node.name}", node


def test_functions_have_few_parameters():
    many = set()
    for name, node in functions():
        listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if sum(arg.arg not in ("self", "cls") for arg in listed) > 12:
            many.add(name)
    assert many == MANY_PARAMETERS


def test_modules_are_short_enough_to_read():
    long = {name_of(path): n for path in SOURCE.rglob("*.py") if (n := len(path.read_text().splitlines())) > 600}
    assert long == {}


def test_hardly_any_code_is_laid_out_by_hand():
    assert sum(path.read_text().count("# fmt: skip") for path in SOURCE.rglob("*.py")) < 20


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_documents_name_only_files_that_exist(document):
    text = (ROOT / document).read_text()
    wanted = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", text)
    missing = [name for name in wanted if not ((SOURCE / name).exists() or (ROOT / name).exists())]
    assert wanted
    assert missing == []


def test_the_architecture_names_every_module_that_many_others_import():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    importers = {name: sum(name in others for others in graph().values()) for name in graph()}
    common = [
        name
        for name, count in importers.items()
        if count >= 8 and name not in ("", "_version") and not name.startswith("paper.")
    ]
    assert [name for name in common if name.replace(".", "/") not in text] == []
