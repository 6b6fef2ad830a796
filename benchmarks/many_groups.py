"""Searches with many constraints: several groups, several attributes, many rows: ``python -m benchmarks many_groups``.

Adult (cross-fitted logistic regression) and KDD Census Income (cross-fitted boosted trees), 20,000 rows each, without
the features that reveal the race. Accuracy is that on the rows that the rule is learnt from, because that is what a
search maximises. Seconds are CPU time. A synthetic problem shows what many rows cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from benchmarks.splits import MODELS, dataset, directory
from benchmarks.tradeoff import table
from evenhand.errors import EvenhandError
from evenhand.rows import read_rows
from evenhand.rules.criteria import resolve
from evenhand.rules.setting import Options, Setting
from evenhand.search import Certified, Directions, Dual, Lines, NoRule, Problem, Search, Smoothed
from evenhand.search.problem import FEASIBILITY_SLACK

ROWS, FOLDS = 20_000, 3
TOLERANCES = (0.10, 0.05, 0.02, 0.01)
MODEL = {"adult": "logistic regression", "census": "boosted trees"}
CENSUS_RACE, AGE = "10", {"adult": "age", "census": "0"}
FEWEST_POSITIVES = 300
MOST_CONTRASTS_FOR_LINES = 5
SETTINGS = {
    "race": ("race",),
    "sex, race": ("sex", "race"),
    "sex x race": ("sex & race",),
    "sex, race, age": ("sex", "race", "age"),
}


@cache
def attributes(name: str) -> dict[str, NDArray[Any]]:
    """Return sex, race, an age band and sex crossed with race, of all rows of a data set."""
    data = dataset(name)
    columns = dict(zip(data.feature_names, data.X.T, strict=True))
    if name == "adult":
        race = data.sensitive["race"].astype(str)
    else:  # five groups, of which two have too few positive labels to be counted apart
        code = columns[CENSUS_RACE].astype(int)
        rare = np.flatnonzero(np.bincount(code, weights=data.y) < FEWEST_POSITIVES)
        race = np.where(np.isin(code, rare), "other", np.char.add("race ", code.astype(str)))
    age = columns[AGE[name]]
    band = np.array(["young", "middle", "old"])[np.digitize(age, np.quantile(age, [1 / 3, 2 / 3]))]
    sex = data.sensitive["sex"].astype(str)
    return {"sex": sex, "race": race, "age": band, "sex & race": np.char.add(np.char.add(sex, " & "), race)}


def features(name: str) -> NDArray[np.float64]:
    """Return the features without those that reveal the race."""
    data = dataset(name)
    told = [
        feature == CENSUS_RACE if name == "census" else feature.startswith("race=") for feature in data.feature_names
    ]
    return data.X[:, ~np.array(told)]


@cache
def probabilities(name: str) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Return 20,000 rows and their cross-fitted p(Y|x) and, for each attribute, p(Y, A|x); computed once and kept."""
    path = directory() / f"many-groups-{name}.npz"
    if not path.exists():
        with threadpool_limits(1):
            np.savez(path, **_probabilities(name))
    kept = dict(np.load(path))
    return kept.pop("rows"), kept


def _probabilities(name: str) -> dict[str, NDArray[Any]]:
    data, X, columns = dataset(name), features(name), attributes(name)
    rows = np.sort(np.random.default_rng(0).choice(len(data.y), ROWS, replace=False))
    targets = {"p_y": data.y[rows]}
    for attribute, column in columns.items():
        groups = np.unique(column)
        targets[attribute] = len(groups) * data.y[rows] + np.searchsorted(groups, column[rows])
    found: dict[str, NDArray[Any]] = {"rows": rows}
    for target, code in targets.items():
        n_codes = 2 if target == "p_y" else 2 * len(np.unique(columns[target]))
        p = np.zeros((ROWS, n_codes))
        for train, held in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows, targets["p_y"]):
            model = clone(MODELS[MODEL[name]]).fit(X[rows[train]], code[train])
            p[np.ix_(held, model.classes_)] = model.predict_proba(X[rows[held]])
        found[target] = p[:, 1] if target == "p_y" else p.reshape(ROWS, 2, -1)
    return found


def problem(name: str, setting: str, criterion: str, tolerances: Any) -> Problem:
    """Return the problem of a search."""
    rows, kept = probabilities(name)
    columns = {attribute: attributes(name)[attribute][rows] for attribute in SETTINGS[setting]}
    joint = {attribute: kept[attribute] for attribute in columns}
    options = Options(criterion=resolve(criterion))
    groups = {a: tuple(np.unique(attributes(name)[a])) for a in columns}
    read = read_rows(dataset(name).y[rows], columns, kept["p_y"], joint, criterion=options.criterion, groups=groups)
    return Setting.of(read, options).problem(np.atleast_1d(tolerances))


SEARCHES: dict[str, Search] = {
    "smoothed": Smoothed(),
    "certified": Certified(),
    "directions": Directions(),
    "lines (5)": Lines(m=5),
    "dual": Dual(),
}


@dataclass(frozen=True)
class Measured:
    """The result of a search on one problem; the utility is None if no rule meets the bounds."""

    utility: float | None
    seconds: float
    proven: bool

    def __str__(self) -> str:
        if self.seconds != self.seconds:
            return "-"
        found = "none" if self.utility is None else f"{100 * self.utility:.2f}"
        return f"{found}{'*' if self.proven else ''} ({self.seconds:.1f})"


def measure(search: Search, instance: Problem) -> Measured:
    """Solve a problem of one step; lines are left out if they take minutes."""
    if isinstance(search, Lines) and instance.dimension > MOST_CONTRASTS_FOR_LINES:
        return Measured(None, np.nan, False)
    started = time.process_time()
    result = search.solve(instance, random_state=0)[0]
    seconds = time.process_time() - started
    if isinstance(result, NoRule):
        return Measured(None, seconds, result.proven)
    met = instance.excess(np.array(result.values)) <= FEASIBILITY_SLACK
    return Measured(result.utility if met else None, seconds, result.status == "optimal")


def real_problems() -> Iterable[tuple[str, Problem]]:
    """Yield each problem of one tolerance, with its name; those with cells too small to be counted are left out."""
    for name in MODEL:
        for setting in SETTINGS:
            for criterion in ("dp", "eo"):
                try:
                    ladder = problem(name, setting, criterion, sorted(TOLERANCES))
                except EvenhandError as error:
                    print(f"{name}, {setting}, {criterion}: left out. {error}")
                    continue
                for step in reversed(range(len(TOLERANCES))):
                    tolerance = sorted(TOLERANCES)[step]
                    label = f"{name}, {setting}, {criterion}, K = {ladder.dimension}, {tolerance:.2f}"
                    yield label, ladder.take([step])


def compare() -> None:
    """Print accuracy and CPU seconds of every search on every problem, and a summary."""
    rows, kept = [], []
    for label, instance in real_problems():
        measured = [measure(search, instance) for search in SEARCHES.values()]
        rows.append([label, *map(str, measured)])
        kept.append(measured)
        print(" | ".join(rows[-1]), flush=True)
    print("\naccuracy in % (CPU s); * proven optimal, or proven that there is no rule")
    print(table(["problem", *SEARCHES], rows))
    summary = []
    best = [max((m.utility for m in measured if m.utility is not None), default=None) for measured in kept]
    for position, name in enumerate(SEARCHES):
        mine = [measured[position] for measured in kept]
        losses = [
            100 * (top - m.utility)
            for top, m in zip(best, mine, strict=True)
            if top is not None and m.utility is not None
        ]
        optima = [
            100 * (measured[1].utility - m.utility)
            for measured, m in zip(kept, mine, strict=True)
            if measured[1].proven and measured[1].utility is not None and m.utility is not None
        ]
        tried = [top is not None and m.seconds == m.seconds for top, m in zip(best, mine, strict=True)]
        missing = sum(tried) - sum(m.utility is not None for m in mine)
        behind = f"{np.mean(losses):.3f} / {np.max(losses):.2f}" if losses else "-"
        proven = f"{np.mean(optima):.3f} / {np.max(optima):.2f}" if optima else "-"
        summary.append(
            [name, f"{missing} of {sum(tried)}", behind, proven, f"{np.nanmean([m.seconds for m in mine]):.2f}"]
        )
    header = [
        "search",
        "no rule, though one exists",
        "behind the best, mean / most",
        "behind proven optima",
        "mean CPU s",
    ]
    print(table(header, summary))


def synthetic(n: int, groups: int, labels: tuple[int | None, ...], tolerance: float) -> Problem:
    """Return a problem with true probabilities: parity of groups whose features differ, given each label."""
    rng = np.random.default_rng(0)
    group = rng.choice(groups, n, p=np.arange(groups, 0, -1) / (groups * (groups + 1) / 2))
    centres = np.column_stack([np.linspace(1.0, -1.0, groups), np.random.default_rng(7).normal(size=(groups, 2))])
    X = rng.normal(size=(n, 3)) + centres[group]
    p_y = 1.0 / (1.0 + np.exp(-(X @ [1.2, 0.5, -0.5])))
    y = rng.random(n) < p_y
    near = np.exp(-0.5 * ((X[:, None] - centres) ** 2).sum(axis=2)) * np.bincount(group)
    p_group = near / near.sum(axis=1, keepdims=True)
    densities, shares = [], []
    for label in labels:
        chance = np.ones(n) if label is None else p_y if label else 1.0 - p_y
        members = (group[:, None] == np.arange(groups)) & (
            np.ones((n, 1), bool) if label is None else (y == label)[:, None]
        )
        shares.append(members / members.sum(axis=0))
        densities.append(p_group * chance[:, None] / members.mean(axis=0))
    pairs = np.array([np.eye(groups)[a] - np.eye(groups)[b] for a in range(groups) for b in range(a + 1, groups)])
    basis = pairs[: groups - 1]
    mixing = np.kron(np.eye(len(labels)), np.linalg.lstsq(basis.T, pairs.T)[0].T.round())
    bounds = np.full(len(mixing), tolerance)
    return Problem(
        2.0 * p_y - 1.0, np.hstack([density @ basis.T for density in densities]), np.where(y, 1.0, -1.0) / n,
        np.hstack([share @ pairs.T for share in shares]), -bounds, bounds, float(1.0 - y.mean()), mixing,
    )  # fmt: skip


def many_rows() -> None:
    """Print what many rows cost, and what the rule of 20,000 rows does on more of the same distribution."""
    rows = []
    for groups, labels, criterion in ((5, (None,), "dp"), (4, (0, 1), "eo")):
        few = Smoothed().solve(synthetic(20_000, groups, labels, 0.05))[0]
        for n in (20_000, 200_000, 1_000_000):
            instance = synthetic(n, groups, labels, 0.05)
            found = measure(Smoothed(), instance)
            rays = str(measure(Directions(40), instance)) if n < 1_000_000 else "-"
            utility, values = instance.evaluate(instance.decide(np.array(few.z)))
            carried = f"{100 * utility:.2f}, {instance.excess(values):.3f} over"
            rows.append([f"{groups} groups, {criterion}, {n:,} rows", str(found), rays, carried])
            print(" | ".join(rows[-1]), flush=True)
    print(table(["synthetic, 0.05", "smoothed", "directions (40)", "rule of 20,000 rows"], rows))


def main() -> None:
    """Print every figure."""
    small = synthetic(500, 3, (None,), 0.1)
    for search in SEARCHES.values():
        search.solve(small)
    many_rows()
    compare()


if __name__ == "__main__":
    main()
