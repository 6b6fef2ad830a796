"""Adult (Census Income), embedded: no network is needed."""

from __future__ import annotations

import hashlib
import lzma
from importlib import resources

import numpy as np

from evenhand.paper.datasets._fetch import DataError
from evenhand.paper.datasets._tables import encode, read_columns
from evenhand.paper.datasets.dataset import Dataset

SHA256 = "66f969c2329a700792dbaa9eb4d5929218991727e22e01175ee9646f9d412fe9"
WHOLE_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
LABEL = "income"
DESCRIPTION = (
    "Adult (Census Income), B. Becker and R. Kohavi, UCI Machine Learning Repository, 1996, "
    "doi:10.24432/C5XW20, CC BY 4.0; the rows with unknown values are left out."
)


def load_adult() -> Dataset:
    """Load Adult, where the label is whether a person earns more than 50,000 dollars a year.

    The two UCI files are joined in their order (30,162 rows of ``adult.data``, then 15,060 of
    ``adult.test``), without the rows that have an unknown value. Features are all columns except ``sex`` and
    the label: six numeric ones, standardised over all rows (``age``, ``fnlwgt``, ``education-num``,
    ``capital-gain``, ``capital-loss``, ``hours-per-week``), and seven others one-hot (``workclass`` 7
    values, ``education`` 16, ``marital-status`` 7, ``occupation`` 14, ``relationship`` 6, ``race`` 5,
    ``native-country`` 41). These are 102 columns; the paper's 108 have ``relationship`` twice.

    Returns
    -------
    Dataset
        45,222 rows. ``sensitive`` has ``sex`` (the paper's A) and ``race``; ``y`` is 1 for an income above
        50K.

    Notes
    -----
    The data is by Barry Becker and Ronny Kohavi, under the Creative Commons Attribution 4.0 International
    licence; see ``NOTICE-ADULT`` beside the embedded file. ``python -m evenhand.paper.datasets._embed_adult``
    builds it again.

    Examples
    --------
    >>> from evenhand.paper.datasets import load_adult
    >>> adult = load_adult()
    >>> adult.X.shape
    (45222, 102)
    >>> for sex in ("Female", "Male"):
    ...     print(sex, adult.y[adult.sensitive["sex"] == sex].mean().round(3))
    Female 0.114
    Male 0.312
    """
    frame = read_columns(_embedded_text(), WHOLE_NUMBERS)
    X, feature_names = encode({name: column for name, column in frame.items() if name not in ("sex", LABEL)})
    return Dataset(
        name="adult",
        X=X,
        y=(frame[LABEL] == ">50K").astype(np.int64),
        sensitive={"sex": frame["sex"], "race": frame["race"]},
        feature_names=feature_names,
        frame=frame,
        split_sizes=(30_000, 5_000, 10_222),
        description=DESCRIPTION,
    )


def _embedded_text() -> str:
    file = resources.files("evenhand.paper.datasets") / "data" / "adult.csv.xz"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"The embedded Adult data cannot be read ({error}): install evenhand again.") from None
    if (found := hashlib.sha256(content).hexdigest()) != SHA256:
        raise DataError(
            f"The embedded Adult data {file} is damaged (SHA-256 {found}, not {SHA256}): install evenhand again."
        )
    return lzma.decompress(content).decode("ascii")
