"""A smoke test of an installed wheel, with its core dependencies and the named extras.

python tools/smoke.py [EXTRA ...]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import evenhand as eh


def core() -> tuple[eh.FairClassifier, Any]:
    """Fit on Adult, decide, write a rule and read it."""
    data = eh.datasets.load_adult()
    take = np.random.default_rng(0).choice(len(data.y), 4_000, replace=False)
    fair = eh.FairClassifier(LogisticRegression(max_iter=300), tolerance=0.05, cv=3, random_state=0)
    fair.fit(data.X[take], data.y[take], sensitive_features=data.sensitive["sex"][take])
    rest = np.setdiff1d(np.arange(len(data.y)), take)
    decided = fair.predict(data.X[rest])
    gap = eh.metrics.demographic_parity_difference(
        data.y[rest], decided, sensitive_features=data.sensitive["sex"][rest]
    )
    assert gap < 0.08
    assert eh.Rule.from_json(fair.rule_.to_json()) == fair.rule_
    print(f"evenhand {eh.__version__}: accuracy {np.mean(decided == data.y[rest]):.3f}, gap {gap:.3f}")
    return fair, data


def cli(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Audit a table on the command line."""
    table = folder / "decided.csv"
    decided = fair.predict(data.X[:2000])
    lines = [f"{a},{y},{d}" for a, y, d in zip(data.sensitive["sex"], data.y[:2000], decided, strict=False)]
    table.write_text("\n".join(["sex,y,decided", *lines]) + "\n")
    command = [sys.executable, "-m", "evenhand", "audit", str(table)]
    command += [
        "--label",
        "y",
        "--decision",
        "decided",
        "--sensitive",
        "sex",
        "--criterion",
        "dp",
        "--tolerance",
        "0.5",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def report(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Write a model card and draw a frontier."""
    from evenhand.report import model_card

    assert "# " in model_card(fair)
    fair.frontier().plot()


def io(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Save a classifier and load it."""
    eh.io.save(fair, folder / "fair.skops")
    assert (eh.io.load(folder / "fair.skops").predict(data.X[:500]) == fair.predict(data.X[:500])).all()


def onnx(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Export a classifier, which compares the export with Python."""
    from evenhand.export.onnx import classifier_to_onnx

    classifier_to_onnx(fair, folder / "fair.onnx", data.X[:500])


def engines(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Learn a rule in DuckDB."""
    import pyarrow as pa

    from evenhand.engines import duckdb as engine

    drawn = eh.datasets.make_zafar(2000, random_state=0)
    columns = {"y": drawn.y, "a": drawn.group, "p": drawn.p_y, "p0": drawn.p_group[:, 0], "p1": drawn.p_group[:, 1]}
    groups = np.unique(drawn.group)
    p_group = dict(zip(groups, ("p0", "p1"), strict=True))
    rule = engine.learn_rule(pa.table(columns), y="y", sensitive_features="a", p_y="p", p_group=p_group)
    assert max(map(abs, rule.solution_.values)) <= 0.05 + 1e-9


def mlflow(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Save a classifier as an MLflow model and load it."""
    from evenhand.export.mlflow import load_classifier, save_model

    save_model(fair, folder / "model", data.X[:500])
    assert (load_classifier(folder / "model").predict(data.X[:500]) == fair.predict(data.X[:500])).all()


def torch(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Train the paper's network."""
    from evenhand.paper.models import MLP

    MLP(max_epochs=1, random_state=0).fit(data.X[:500], data.y[:500]).predict_proba(data.X[:5])


def experiments(folder: Path, fair: eh.FairClassifier, data: Any) -> None:
    """Fit a baseline of the paper."""
    from evenhand.paper.baselines import GroupThresholds

    model = GroupThresholds(LogisticRegression(max_iter=300), criterion="demographic_parity", random_state=0)
    model.fit(data.X[:2000], data.y[:2000], sensitive_features=data.sensitive["sex"][:2000])


def main(*extras: str) -> None:
    """Try the core, then each extra."""
    fair, data = core()
    parts = [part for name in extras for part in (EVERY if name == "all" else (name,))]
    for name in parts:
        with tempfile.TemporaryDirectory() as folder:
            globals()[name](Path(folder), fair, data)
        print(f"{name}: works")


EVERY = ("cli", "report", "io", "onnx", "engines", "mlflow", "torch", "experiments")

if __name__ == "__main__":
    main(*sys.argv[1:])
