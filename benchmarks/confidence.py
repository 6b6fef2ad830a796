"""The cost and the coverage of ``confidence``, by the number of rows: ``python -m benchmarks confidence``.

The first table has known probabilities, at confidence 0.9. The second has real rows, at 0.95: 60,000 rows of KDD
Census Income are the population, so that its gaps are known, and samples are drawn from it with replacement; the models
are trained on the rows that do not certify.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.promise import SIZES, TOLERANCES, study
from threadpoolctl import threadpool_limits

import evenhand as eh
from benchmarks.census import load_census
from benchmarks.splits import directory
from benchmarks.tradeoff import table

FITS, LEVEL = 200, 0.9
POPULATION, SAMPLES = 60_000, 40
MODELS = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)),
    "boosted trees": HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, learning_rate=0.15, min_samples_leaf=10, early_stopping=False
    ),
}
ASKED = (("demographic_parity", 0.05), ("demographic_parity", 0.1), ("equalized_odds", 0.1))


def known(fits: int = FITS) -> None:
    """Print a line for each criterion and size, with and without the guarantee."""
    print(f"{fits} independent fits on the synthetic distribution with its true probabilities, confidence {LEVEL}")
    print(
        f"{'criterion':20}{'tolerance':>10}{'rows':>7}{'violated':>10}{'without':>9}{'no rule':>9}{'accuracy':>10}",
        end="",
    )
    print(f"{'without':>9}{'gap':>8}{'without':>9}")
    for criterion, sizes in SIZES.items():
        for n in sizes:
            promised, plain = study(criterion, n, fits, LEVEL), study(criterion, n, fits, None)
            print(
                f"{criterion:20}{TOLERANCES[criterion]:>10g}{n:>7}{promised.violated:>10.3f}{plain.violated:>9.3f}"
                f"{promised.refused:>9.3f}{promised.accuracy:>10.4f}{plain.accuracy:>9.4f}{promised.gap:>8.4f}"
                f"{plain.gap:>9.4f}",
                flush=True,
            )


def census(samples: int = SAMPLES) -> None:
    """Print a table of fits to samples of a population of real rows."""
    data = load_census(directory())
    chosen = np.random.default_rng(0).choice(len(data.y), POPULATION, replace=False)
    X, y, group = data.X[chosen], data.y[chosen], data.sensitive["sex"][chosen]
    lines = []
    for (title, model), n, (criterion, tolerance) in itertools.product(MODELS.items(), (2_000, 5_000), ASKED):
        found = []
        for seed in range(samples):
            drawn = np.random.default_rng(10_000 + seed).integers(0, POPULATION, n)
            fair = eh.FairClassifier(
                model, criterion=criterion, tolerance=tolerance, confidence=0.95, random_state=seed
            )
            try:
                fair.fit(X[drawn], y[drawn], sensitive_features=group[drawn])
            except eh.InfeasibleError:
                continue
            decided = fair.predict(X)
            found.append((np.mean(decided == y), _gap(criterion, decided, y, group)))
        accuracy, gap = np.array(found).reshape(-1, 2).T
        means = [f"{100 * accuracy.mean():.2f}", f"{gap.mean():.4f}"] if found else ["-", "-"]
        shares = [f"{len(found)} of {samples}", f"{(gap > tolerance).sum()} of {samples}"]
        lines.append([title, f"{criterion.replace('_', ' ')}, {tolerance:g}", f"{n:,}", *shares, *means])
    print(table(["model", "criterion", "rows", "solutions", "violated", "accuracy (%)", "gap"], lines), flush=True)


def _gap(criterion: str, decided: NDArray[np.int64], y: NDArray[np.int64], group: NDArray[np.str_]) -> float:
    within = [np.ones(len(y), dtype=bool)] if criterion == "demographic_parity" else [y == 0, y == 1]
    rates = [[decided[rows & (group == name)].mean() for name in np.unique(group)] for rows in within]
    return float(max(abs(first - second) for first, second in rates))


def main() -> None:
    """Print both tables."""
    known()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        census()


if __name__ == "__main__":
    main()
