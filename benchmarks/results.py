"""The measurements of the comparison with peers, in two files: ``peers`` writes them, ``tables`` reads them.

``peers.csv`` has a line for each method and split: test accuracy and test gap for every tolerance asked for, empty
where the method had no rule. ``times.csv`` has a line for each method's time. Both are committed, so that every table
and figure of the comparison can be made, and checked, without running anything again. A quick look
(``EVENHAND_SPLITS``) keeps its own files in the benchmarks' directory.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pandas as pd

from benchmarks.splits import directory
from benchmarks.tradeoff import Outcomes, Point

ASKED = (0.01, 0.02, 0.05, 0.10, 0.20)
QUICK_LOOK = "EVENHAND_SPLITS" in os.environ
HOLD_OUT, CROSS_FITTED, OWN_MODELS = "hold-out", "cross-fitted", "with its models"
COMMITTED = Path(__file__).parent / "results"
Row = dict[str, object]


def place() -> Path:
    """Return the directory of the files."""
    return directory() if QUICK_LOOK else COMMITTED


def point_columns(points: list[Point | None]) -> Row:
    """Return a split's points as columns."""
    return {
        f"{what} {tolerance:.2f}": None if point is None else round(point[part], 6)
        for tolerance, point in zip(ASKED, points, strict=True)
        for part, what in enumerate(("accuracy", "gap"))
    }


def write(name: str, rows: list[Row]) -> None:
    """Write one of the files."""
    place().mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(place() / name, index=False, lineterminator="\n")


def read(name: str) -> pd.DataFrame:
    """Return one of the files."""
    return pd.read_csv(place() / name)


def outcomes(measured: pd.DataFrame) -> dict[str, Outcomes]:
    """Return the outcomes of the methods for one data set, model and criterion."""
    found: dict[str, Outcomes] = {}
    for method, lines in measured.groupby("method", sort=False):
        kept = found.setdefault(str(method), Outcomes(ASKED))
        for _, line in lines.iterrows():
            kept.add(points_of(line))
    return found


def points_of(line: pd.Series) -> list[Point | None]:
    """Return the points that a line of a file has, one for each tolerance asked for."""
    pairs = [(float(line[f"accuracy {t:.2f}"]), float(line[f"gap {t:.2f}"])) for t in ASKED]
    return [None if gap != gap else (accuracy, gap) for accuracy, gap in pairs]


@cache
def _committed() -> pd.DataFrame:
    keys = ["data", "model", "criterion", "split", "method"]
    return pd.read_csv(COMMITTED / "peers.csv").set_index(keys).sort_index()


def recorded(*about: object) -> list[Point | None]:
    """Return the points of the committed file: of a data set, model, criterion, split and method."""
    return points_of(_committed().loc[about])
