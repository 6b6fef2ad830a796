"""One comparison of evenhand with OxonFair: what both maximise and what both are asked to keep.

Both methods get the same cross-fitted probabilities and are asked for the same values of a constraint. What is compared
is the mean test score where the mean test value of the constraint is the same.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.postprocessors import Fit
from benchmarks.results import Row, read, write
from benchmarks.splits import Rows, splits
from benchmarks.tradeoff import Decisions, Point

# How many splits of each data set, by the model.
RUNS = {
    ("adult", "logistic regression"): 10,
    ("compas", "logistic regression"): 20,
    ("compas", "boosted trees"): 20,
    ("census", "boosted trees"): 3,
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """What is compared, where and on what.

    Attributes
    ----------
    file : str
        Of the results.
    methods : mapping of str to Fit
        Both methods, by their titles.
    criteria : tuple of str
        What is bounded, as the methods name it.
    asked : mapping of str to tuple of float
        The values that are asked for, by the data's name.
    measure : callable
        Returns the test score and the test value of what is bounded.
    columns : (str, str, str)
        Titles for what is asked for, the score, and the value.
    """

    file: str
    methods: Mapping[str, Fit]
    criteria: tuple[str, ...]
    asked: Mapping[str, tuple[float, ...]]
    measure: Callable[[Rows, str, Decisions], Point]
    columns: tuple[str, str, str]

    def measurements(self, name: str, model: str, n: int) -> Iterator[Row]:
        """Yield a line for each split, criterion, method and value that is asked for."""
        asked, score, kept = self.columns
        for split in splits(name, model, n):
            learn, test = split.crossfit.learn, split.crossfit.test
            for criterion in self.criteria:
                for method, fit in self.methods.items():
                    about: Row = {"data": name, "model": model, "criterion": criterion, "method": method}
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        deciders = fit(learn, criterion, self.asked[name])
                    for value, decide in deciders.items():
                        line = about | {"split": split.seed, asked: value, score: None, kept: None}
                        if decide is not None:
                            point = self.measure(test, criterion, decide(test, split.seed))
                            line |= {score: round(point[0], 6), kept: round(point[1], 6)}
                        yield line
            print(f"{name}, {model}: split {split.seed}", file=sys.stderr, flush=True)

    def run(self, table: Callable[..., str]) -> None:
        """Measure, write it down, and print the table."""
        write(self.file, [line for setting, n in RUNS.items() for line in self.measurements(*setting, n)])
        print(table(read(self.file)))
