"""How long searches take, as ratios to one argsort of as many random numbers."""

from __future__ import annotations

import time
import tracemalloc
from functools import cache
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import evenhand as eh
from benchmarks.timing import argsort_seconds, median_seconds
from evenhand.rows import read_rows
from evenhand.rules.criteria import resolve
from evenhand.rules.setting import Options, Setting
from evenhand.search import Certified, Problem

SYNTHETIC = (0.15, 0.05, 0.01)
ADULT = (0.10, 0.05, 0.01)
ADULT_ROWS = 45_222


@cache
def adult_probabilities() -> tuple[Any, ...]:
    """Adult with a cross-fitted logistic regression: labels, attributes, p(Y|x) and p(Y,A|x) for sex and race."""
    data = eh.datasets.load_adult()
    model = LogisticRegression(max_iter=300)
    race = np.where(data.sensitive["race"] == "White", "White", "other")
    attributes = {"sex": data.sensitive["sex"], "race": race}
    p_y = cross_val_predict(model, data.X, data.y, cv=3, method="predict_proba")[:, 1]
    joint = {}
    for name, column in attributes.items():
        codes = 2 * data.y + (column == np.unique(column)[1])
        joint[name] = cross_val_predict(model, data.X, codes, cv=3, method="predict_proba").reshape(-1, 2, 2)
    return data.y, attributes, p_y, joint


def rows(source: str, n: int, seed: int = 0) -> tuple[Any, ...]:
    """Return n rows of one of the two sources; Adult has 45,222."""
    if source == "synthetic":
        data = eh.datasets.make_zafar(n, random_state=seed, iid=True)
        rng = np.random.default_rng(seed)
        p_second = 1.0 / (1.0 + np.exp(-0.5 * data.X[:, 1] + 0.5))
        second = np.where(rng.random(n) < p_second, "b", "a")
        joint = np.stack([1 - data.p_y, data.p_y], axis=1)[:, :, None] * np.stack([1 - p_second, p_second], 1)[:, None]
        return data.y, {"sex": data.group, "race": second}, data.p_y, {"sex": data.p_joint, "race": joint}
    y, attributes, p_y, joint = adult_probabilities()
    rng = np.random.default_rng(seed)
    take = rng.choice(len(y), n, replace=False)
    return (
        y[take],
        {name: column[take] for name, column in attributes.items()},
        p_y[take],
        {name: array[take] for name, array in joint.items()},
    )


def problem(source: str, n: int, criterion: Any, tolerances: Any, seed: int = 0) -> Problem:
    """Return what a search sees."""
    y, attributes, p_y, joint = rows(source, n, seed)
    options = Options(criterion=resolve(criterion))
    rows_read = read_rows(y, attributes, p_y, joint, criterion=options.criterion)
    return Setting.of(rows_read, options).problem(np.atleast_1d(tolerances))


def figures(
    label: str, n: int, criterion: Any, search: Certified, at_most: float, aim: float, repeats: int = 5
) -> None:
    """Print the ratio on every instance, and the median over them. Adult takes part where it has rows enough."""
    unit = argsort_seconds(n)
    ratios = []
    for source, tolerances in (("synthetic", SYNTHETIC), ("adult", ADULT))[: 1 if n > ADULT_ROWS else 2]:
        for tolerance in tolerances:
            instance = problem(source, n, criterion, tolerance)
            solution = search.solve(instance)[0]
            seconds = median_seconds(lambda instance=instance: search.solve(instance), repeats)
            ratios.append(seconds / unit)
            found = getattr(solution, "status", "no rule")
            gap = getattr(solution, "gap", np.nan)
            print(f"    {source:9} {tolerance:5.2f}  {seconds * 1e3:9.1f} ms  {ratios[-1]:9.1f} x  {found} {gap:.4f}")
    verdict = "aim met" if np.median(ratios) <= aim else "met" if np.median(ratios) <= at_most else "MISSED"
    print(f"{label}, N = {n:,}: median {np.median(ratios):.1f} x argsort (at most {at_most:g}, aim {aim:g}): {verdict}")


def draws_figure(label: str, n: int, criterion: Any, tolerance: float, at_most: float, draws: int = 10) -> None:
    """Print the CPU seconds of a certified solve over several draws of Adult's rows, and the worst."""
    seconds = []
    for seed in range(draws):
        instance = problem("adult", n, criterion, tolerance, seed)
        started = time.process_time()
        solution = Certified(max_seconds=60, n_jobs=1).solve(instance)[0]
        seconds.append(time.process_time() - started)
        print(f"    draw {seed}: {seconds[-1]:.2f} CPU s, {getattr(solution, 'status', 'no rule')}")
    verdict = "met" if max(seconds) <= at_most else "MISSED"
    print(f"{label}, N = {n:,}: worst of {draws} draws {max(seconds):.2f} CPU s (at most {at_most:g}): {verdict}")


def known_problem(attribute: str, n: int, criterion: Any, tolerance: float, seed: int) -> Problem:
    """Return what a search sees of a draw of Adult's rows where the attribute itself is known."""
    y, _, p_y, _ = adult_probabilities()
    column = eh.datasets.load_adult().sensitive[attribute.split()[0]]
    if attribute == "race (3)":
        column = np.where(np.isin(column, ["White", "Black"]), column, "other")
    take = np.random.default_rng(seed).choice(len(y), n, replace=False)
    groups, codes = np.unique(column[take], return_inverse=True)
    known = np.zeros((n, 2, len(groups)))
    known[np.arange(n), 0, codes], known[np.arange(n), 1, codes] = 1.0 - p_y[take], p_y[take]
    options = Options(criterion=resolve(criterion))
    read = read_rows(y[take], {"A": column[take]}, p_y[take], {"A": known}, criterion=options.criterion)
    return Setting.of(read, options).problem(np.atleast_1d(tolerance))


def known_groups_figure(n: int = 20_000, draws: int = 20) -> None:
    """Print, for known groups, how many draws of Adult's rows have a proven answer, and the CPU seconds of each."""
    Certified().solve(known_problem("sex", 500, "equalized_odds", 0.3, 0))
    for attribute, criterion, tolerances in (
        ("sex", "equalized_odds", (0.01, 0.02)),
        ("race (3)", "equalized_odds", (0.02, 0.05)),
        ("race (3)", "demographic_parity", (0.02, 0.05)),
        ("race", "equalized_odds", (0.05, 0.10)),
        ("race", "demographic_parity", (0.02, 0.05)),
    ):
        for tolerance in tolerances:
            seconds, found = [], []
            for seed in range(draws):
                instance = known_problem(attribute, n, criterion, tolerance, seed)
                started = time.process_time()
                found.append(Certified(n_jobs=1).solve(instance)[0])
                seconds.append(time.process_time() - started)
            rules = sum(getattr(result, "status", "") == "optimal" for result in found)
            none = sum(getattr(result, "proven", False) for result in found)
            print(
                f"known {attribute}, {criterion} at {tolerance:g}, N = {n:,}, {draws} draws: {rules} with a rule proven"
                f" best, {none} proven without one; median {np.median(seconds):.3f} CPU s, worst {max(seconds):.3f}"
            )


def frontier_figure(n: int = 20_000) -> None:
    """Print what a frontier of 50 tolerances costs, in certified solves."""
    for source in ("synthetic", "adult"):
        single = problem(source, n, eh.EqualizedOdds(attribute="sex"), 0.05)
        ladder = problem(source, n, eh.EqualizedOdds(attribute="sex"), np.linspace(0.004, 0.2, 50))
        one, all_ = (median_seconds(lambda p=p: Certified().solve(p), 5) for p in (single, ladder))
        print(f"frontier of 50 tolerances, K = 2, {source}, N = {n:,}: {all_ / one:.1f} solves (at most 7, aim 5)")


def decide_figure(n: int = 10_000_000) -> None:
    """Print how fast a rule decides, against one pass over the same arrays."""
    rng = np.random.default_rng(0)
    p_y = rng.random(n)
    joint = rng.dirichlet(np.ones(4), size=n).reshape(n, 2, 2)
    rule = eh.Rule.from_criterion("eo", groups={"A": (0, 1)}, priors=np.full((2, 2), 0.25), z=[0.01, -0.02])
    rule.decide(p_y[:10], joint[:10])
    once = median_seconds(lambda: p_y.sum() + joint.sum())
    decide = median_seconds(lambda: rule.decide(p_y, joint))
    print(f"decide, {n:,} rows, K = 2: {decide * 1e3:.0f} ms, {decide / once:.1f} x one .sum() (at most 3, aim 2)")


def memory_figure(n: int = 400_000) -> None:
    """Print the peak memory of a certified solve beyond its input."""
    instance = problem("synthetic", n, eh.EqualizedOdds(attribute="sex"), 0.05)
    size = sum(a.nbytes for a in (instance.margin, instance.contrasts, instance.gain, instance.effects))
    tracemalloc.start()
    Certified().solve(instance)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"peak memory of a certified solve, N = {n:,}: {peak / size:.1f} x its input (at most 20)")


def main() -> None:
    """Print every figure."""
    Certified().solve(problem("synthetic", 500, eh.EqualizedOdds(attribute="sex"), 0.1))
    figures("K = 1 (DP) exact", 1_000_000, eh.DemographicParity(attribute="sex"), Certified(), 6, 3)
    figures("K = 2 (EO) certified, gap 0", 20_000, eh.EqualizedOdds(attribute="sex"), Certified(), 25, 10)
    figures("K = 2 (EO) certified, gap 0", 400_000, eh.EqualizedOdds(attribute="sex"), Certified(), 100, 30, 3)
    for cores, word in ((None, "both cores"), (1, "one core")):
        four = Certified(gap=0.001, max_seconds=60, n_jobs=cores)
        label = f"K = 4 (EO on two attributes) certified, gap 0.001, {word}"
        figures(label, 5_000, eh.EqualizedOdds(), four, 5_000, 1_000, 1)
    free = eh.EqualizedOdds(attribute="sex") & eh.SelectionBudget()
    draws_figure("K = 3 (EO with a free threshold), gap 0", 20_000, free, 0.05, 3)
    known_groups_figure()
    frontier_figure()
    decide_figure()
    memory_figure()


if __name__ == "__main__":
    main()
