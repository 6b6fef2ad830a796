"""What is drawn at random: every public entry, given inputs that are nearly right.

What each parameter of each public callable is given one at a time is in calls.py; here two are wrong at once.

Each target takes a random generator, makes one hostile input and calls the library. It may return, or raise one of
the library's own exceptions; anything else is a finding. Inputs start from something valid and are then damaged,
because noise alone is refused at the first check.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from calls import calls, hostile_values, problem_with

import evenhand as eh
from evenhand.rules.criteria import resolve
from evenhand.search import Certified, Directions, Lines

Generator = np.random.Generator

ODD_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, np.inf, -np.inf, np.nan, 2.0, 1 + 1e-12, -1e-12, 1e-6)
ODD_VALUES = (None, True, "", "a", "<script>", "\x00", "é", 0, -1, 2**70, 0.1, np.nan, [], {}, (1, 2), b"x", object())
CRITERIA = (
    "demographic_parity", "equalized_odds", "true_positive_rate_parity", "false_positive_rate_parity", "dp", "eo",
    "eop", "pe", "equal_opportunity", "predictive_equality",
)  # fmt: skip


def choose(rng: Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def damaged(rng: Generator, array: np.ndarray) -> Any:
    """Return an array with something wrong with it, or nothing."""
    array = np.array(array)
    kind = int(rng.integers(12))
    if kind == 0 and array.size:
        array = array.astype(object)
        array.flat[int(rng.integers(array.size))] = choose(rng, ODD_VALUES)
    elif kind == 1 and array.dtype.kind == "f" and array.size:
        array.flat[int(rng.integers(array.size))] = choose(rng, ODD_NUMBERS)
    elif kind == 2:
        array = array[: int(rng.integers(len(array) + 1))]
    elif kind == 3:
        array = array[..., None]
    elif kind == 4:
        array = array.reshape(-1)
    elif kind == 5:
        return array.tolist()
    elif kind == 6:
        kinds = ("str", "object") if array.dtype.kind == "U" else ("float32", "str", "bool", "complex", "int8")
        array = array.astype(choose(rng, kinds))
    elif kind == 7:
        return choose(rng, ODD_VALUES)
    elif kind == 8 and array.dtype.kind == "f":
        array = array * choose(rng, (1.0 + 1e-9, 1.1, -1.0, 0.0))
    elif kind == 9:
        array[...] = array.flat[0] if array.size else 0
    return array


def rows(rng: Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, groups, p(Y|x) and p(Y,A|x) that are fit to learn from."""
    n, groups = int(rng.integers(1, 60)), int(rng.integers(1, 4))
    joint = rng.dirichlet(np.ones(2 * groups), size=n)
    cell = np.array([rng.choice(2 * groups, p=row) for row in joint])
    joint = joint.reshape(n, 2, groups)
    return cell // groups, np.array(list("abc"))[cell % groups], joint[:, 1].sum(axis=1), joint


def some_criterion(rng: Generator) -> Any:
    made: tuple[Callable[[], Any], ...] = (
        lambda: choose(rng, CRITERIA),
        lambda: eh.SelectionRatio(choose(rng, (0.8, 1.0, 0.0, -1.0, 2.0, np.nan))),
        lambda: eh.MinimumRate(choose(rng, ("tpr", "fpr", "selection_rate", "?")), choose(rng, ODD_NUMBERS)),
        lambda: eh.MinimaxRate(choose(rng, ("error", "fnr", "tpr", "?"))),
        lambda: eh.PredictiveParity(tolerance=choose(rng, ODD_NUMBERS)) & eh.SelectionBudget(),
        lambda: eh.SelectionBudget(upper=choose(rng, ODD_NUMBERS)),
        lambda: eh.DemographicParity(tolerance=choose(rng, ODD_NUMBERS)) & eh.EqualOpportunity(),
        lambda: eh.EqualizedOdds(attribute=choose(rng, ("A", "sex", "", eh.Intersection("a", "b")))),
        lambda: choose(rng, ODD_VALUES),
    )
    return choose(rng, made)()


def criteria(rng: Generator) -> None:
    """Words that are nearly the name of a criterion."""
    word = list(choose(rng, CRITERIA))
    for _ in range(int(rng.integers(3))):
        word[int(rng.integers(len(word)))] = choose(rng, string.printable)
    resolve("".join(word) if rng.random() < 0.8 else choose(rng, ODD_VALUES))


def learning(rng: Generator) -> None:
    """Labels, groups and probabilities with one thing wrong, under any criterion."""
    inputs: list[Any] = list(rows(rng))
    if rng.random() < 0.7:
        position = int(rng.integers(4))
        inputs[position] = damaged(rng, inputs[position])
    rule = eh.learn_rule(
        *inputs, criterion=some_criterion(rng), tolerance=choose(rng, (0.1, 0.0, 1.0, *ODD_NUMBERS)),
        evidence=choose(rng, ("labels", "labels", "model", "both", "none")),
        search=choose(rng, (Certified(max_seconds=0.3), Directions(8), Lines(20), "dual", "?")),
        sample_weight=choose(rng, (None, None, rng.random(len(inputs[2])) if isinstance(inputs[2], np.ndarray) else 1)),
        costs=choose(rng, (None, None, (1.0, 2.0), (0.0, 0.0), (np.nan, 1.0), "x")),
        objective=choose(rng, ("accuracy", "accuracy", "balanced_accuracy", "f1", "f0", "fbeta", 1.0)),
    )  # fmt: skip
    eh.Rule.from_json(rule.to_json())


def deciding(rng: Generator) -> None:
    """A good rule, and scores that it does not expect."""
    y, _, p_y, joint = rows(rng)
    groups = tuple("abc"[: joint.shape[2]])
    kinds = ("eo", "dp") if len(groups) > 1 else ("dp",)
    priors = np.full((2, len(groups)), 0.5 / len(groups))
    terms = 2 * (len(groups) - 1)
    rule = eh.Rule.from_criterion(kinds[0], groups={"A": groups}, priors=priors, z=list(rng.normal(size=terms)))
    p_y, joint = (damaged(rng, a) if rng.random() < 0.6 else a for a in (p_y, joint))
    choose(rng, (rule.decide, rule.decision_function, rule.bias_scores, rule.explain))(p_y, joint)
    assert y is not None


def rule_files(rng: Generator) -> None:
    """The text of a rule with some characters, lines or values changed."""
    rule = eh.Rule.from_criterion("eo", groups={"A": ("a", "b")}, priors=np.full((2, 2), 0.25), z=[0.1, -0.2])
    text = rule.to_json()
    kind = int(rng.integers(4))
    if kind == 0:
        text = text[: int(rng.integers(len(text)))]
    elif kind == 1:
        changed = list(text)
        for _ in range(int(rng.integers(1, 6))):
            changed[int(rng.integers(len(changed)))] = choose(rng, string.printable)
        text = "".join(changed)
    elif kind == 2:
        data = json.loads(text)
        node: Any = data
        while isinstance(node, (dict, list)) and node and rng.random() < 0.7:
            key = choose(rng, list(node) if isinstance(node, dict) else range(len(node)))
            if rng.random() < 0.4 or not isinstance(node[key], (dict, list)):
                node[key] = choose(
                    rng, [v for v in ODD_VALUES if not isinstance(v, (bytes, object().__class__))] or [0]
                )
                break
            node = node[key]
        text = json.dumps(data, default=str)
    else:
        text = choose(rng, ("", "[]", "null", "{", "[" * 100_000, '{"a":' * 5_000, "\ufeff{}", "1e999"))
    eh.Rule.from_json(text)


def auditing(rng: Generator) -> None:
    """Labels, decisions or scores, and groups with one thing wrong."""
    y, group, p_y, _ = rows(rng)
    inputs: list[Any] = [y, p_y if rng.random() < 0.5 else p_y > 0.5, group]
    position = int(rng.integers(3))
    inputs[position] = damaged(rng, inputs[position])
    eh.audit(*inputs)


def metrics(rng: Generator) -> None:
    """Every public metric on damaged labels, decisions and groups."""
    y, group, p_y, _ = rows(rng)
    inputs: list[Any] = [y, (p_y > 0.5).astype(int), group]
    position = int(rng.integers(3))
    inputs[position] = damaged(rng, inputs[position])
    names = ("demographic_parity_difference", "equalized_odds_difference", "equal_opportunity_ratio",
             "demographic_parity_ratio", "equal_opportunity_difference")  # fmt: skip
    getattr(eh.metrics, choose(rng, names))(inputs[0], inputs[1], sensitive_features=inputs[2])


def frontiers(rng: Generator) -> None:
    """Ladders of tolerances that go nowhere."""
    y, group, p_y, joint = rows(rng)
    tolerances = [choose(rng, ODD_NUMBERS) for _ in range(int(rng.integers(4)))]
    eh.frontier(y, group, p_y, joint, criterion=choose(rng, CRITERIA), tolerances=tolerances or None)


def frames(rng: Generator) -> None:
    """Sensitive features as frames of other libraries, dictionaries and odd shapes."""
    import pandas as pd
    import polars as pl

    y, group, p_y, joint = rows(rng)
    value = damaged(rng, group)
    makers: tuple[Callable[[], Any], ...] = (
        lambda: pd.DataFrame({"A": group}),
        lambda: pl.DataFrame({"A": group}),
        lambda: {"A": value},
        lambda: {"A": group, "": value},
        lambda: pd.Series(group, index=rng.permutation(len(group))),
        lambda: pd.Categorical(group),
        lambda: pl.Series([None, *group[1:]]),
    )
    eh.learn_rule(y, choose(rng, makers)(), p_y, joint, criterion="dp", tolerance=choose(rng, (0.1, 1.0)),
                  search=Directions(8))  # fmt: skip


def classifiers(rng: Generator) -> None:
    """Odd parameters of the estimator, and labels, groups and weights with one thing wrong."""
    from sklearn.linear_model import LogisticRegression

    n = int(rng.integers(8, 80))
    inputs: dict[str, Any] = {
        "y": rng.integers(0, 2, n), "sensitive_features": np.array(list("ab"))[rng.integers(0, 2, n)],
        "sample_weight": rng.random(n),
    }  # fmt: skip
    name = choose(rng, list(inputs))
    inputs[name] = damaged(rng, inputs[name])
    options = {
        "criterion": choose(rng, ("dp", "eo", *ODD_VALUES)), "tolerance": choose(rng, (0.1, 0.5, *ODD_NUMBERS)),
        "cv": choose(rng, (2, 0.5, None, 1, -1, 2.0, 10**6, "x")), "ensemble": choose(rng, (False, True, "x")),
        "costs": choose(rng, (None, None, (1.0, 3.0), (-1.0, 1.0), "x")), "search": Directions(8),
        "recalibrate": choose(rng, (False, True, "x")),
    }  # fmt: skip
    fair = eh.FairClassifier(LogisticRegression(), **{k: v for k, v in options.items() if rng.random() < 0.5})
    fair.fit(rng.normal(size=(n, 2)), **inputs).predict(rng.normal(size=(3, 2)))


def aggregates(rng: Generator) -> None:
    """A table with odd values in a column, counted; and the file of the counts with some bytes changed."""
    import pyarrow as pa

    from evenhand.engines import Aggregate, arrow

    y, group, p_y, joint = rows(rng)
    if joint.shape[2] != 2:
        return
    columns: dict[str, Any] = {"p": p_y, "f": joint[:, :, 0].sum(axis=1), "y": y, "sex": group}
    name = choose(rng, list(columns))
    if rng.random() < 0.5:
        columns[name] = choose(
            rng, ([None] * len(y), np.full(len(y), choose(rng, ODD_NUMBERS)), ["x"] * len(y), [[]] * len(y))
        )
    names = {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"a": "f", "b": None}}
    found = arrow.aggregate(pa.table(columns), **{**names, choose(rng, list(names)): choose(rng, ("p", "y", None, 3))}
                            if rng.random() < 0.3 else names)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.parquet"
        found.save(path)
        content = bytearray(path.read_bytes())
        for _ in range(int(rng.integers(4))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
        path.write_bytes(bytes(content[: choose(rng, (None, len(content) // 2, 0, 12))]))
        Aggregate.load(path).learn_rule("dp", 0.1, search=Directions(8), missing="ignore")


def command_line(rng: Generator) -> None:
    """A command with arguments left out, doubled or changed, on a table that may be damaged."""
    from evenhand.cli import main

    y, group, p_y, joint = rows(rng)
    table = {
        "y": y,
        "sex": group,
        "p": p_y,
        **{f"p{c}": joint[:, :, k].sum(axis=1) for k, c in enumerate("abc"[: joint.shape[2]])},
    }
    lines = [
        ",".join(table),
        *(",".join(map(str, row)) for row in zip(*(v.tolist() for v in table.values()), strict=True)),
    ]
    if rng.random() < 0.4:
        place = int(rng.integers(len(lines)))
        lines[place] = choose(
            rng, ("", ",,,", lines[place][:5], "\x00", '"', lines[place] + ",1", "nan,nan,nan,nan,nan,nan")
        )
    given = "--label y --score p --sensitive sex --group-score a=pa --group-score b=pb --tolerance 0.2 --criterion"
    words = [*given.split(), choose(rng, CRITERIA)]
    arguments = [words[k : k + 2] for k in range(0, len(words), 2)]
    for _ in range(int(rng.integers(3))):
        place = int(rng.integers(len(arguments)))
        odd = (
            ["--tolerance", choose(rng, ("-1", "nan", "x", ""))],
            ["--criterion", "dp@"],
            ["--nothing"],
            ["--json"],
            ["--seed", "-5"],
        )
        arguments[place] = choose(rng, ([], [*arguments[place], *arguments[place]], arguments[place][:1], *odd))
    command = choose(rng, ("fit", "audit", "frontier", "apply", "explain", "fti"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / choose(rng, ("rows.csv", "rows.csv", "rows.parquet", "rows"))
        path.write_text("\n".join(lines))
        target = (
            ["-o", str(Path(folder) / choose(rng, ("rule.json", "out.csv", "no/where.json")))]
            if command != "audit"
            else []
        )
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([command, str(path), *itertools.chain(*arguments), *target])
    assert code in (0, 1, 2, 3), (code, err.getvalue())
    assert "Traceback" not in err.getvalue(), err.getvalue()
    assert "bug in evenhand" not in err.getvalue(), err.getvalue()


def pairs(rng: Generator) -> None:
    """Any public callable with something wrong in two of its parameters."""
    names = [name for name, call in calls().items() if call.parameters]
    name = choose(rng, names)
    call = calls()[name]
    changes = {}
    for _ in range(2):
        parameter = choose(rng, call.parameters)
        values = hostile_values(call, parameter)
        changes[parameter] = values[choose(rng, list(values))]()
    wrong = problem_with(name, changes)
    assert not wrong, f"{name} with {list(changes)!r}\n{wrong}"


TARGETS: dict[str, Callable[[Generator], None]] = {
    function.__name__: function
    for function in (
        criteria,
        learning,
        deciding,
        rule_files,
        auditing,
        metrics,
        frontiers,
        frames,
        classifiers,
        aggregates,
        command_line,
        pairs,
    )
}
