"""ONNX compared with Python: rows a second of a rule, and of a whole classifier."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from benchmarks.timing import median_seconds
from evenhand.export.onnx import classifier_to_onnx, rule_to_onnx

BATCH = 16_384
MODELS = {
    "logistic regression": LogisticRegression(),
    "histogram gradient boosting": HistGradientBoostingClassifier(max_iter=50, random_state=0),
}


def open_session(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run_in_batches(session: Any, feeds: dict[str, np.ndarray]) -> None:
    """Run a graph as a service does, on some rows at a time, so that its steps stay in the cache."""
    rows = len(next(iter(feeds.values())))
    for start in range(0, rows, BATCH):
        session.run(["label", "fair_margin"], {name: array[start : start + BATCH] for name, array in feeds.items()})


def show(name: str, rows: int, python: float, onnx: float) -> None:
    print(
        f"  {name:<40} Python {rows / python / 1e6:8.2f}, ONNX {rows / onnx / 1e6:8.2f} million rows a second;"
        f" ratio {python / onnx:.2f}"
    )


def bench_rules(place: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(rows)
    for criterion, k in (("demographic_parity", 1), ("equalized_odds", 2)):
        joint = rng.dirichlet(np.ones(4), rows).reshape(rows, 2, 2)
        rule = eh.Rule.from_criterion(
            criterion, groups={"sex": ("F", "M")}, priors=[[0.3, 0.3], [0.15, 0.25]], z=[0.02, -0.01][:k]
        )
        columns = joint if rule.needs_joint else joint.sum(axis=1)
        rule_to_onnx(rule, place / "rule.onnx")
        session = open_session(place / "rule.onnx")
        feeds = {"p_y": p, "p_group": columns}
        assert (session.run(["label"], feeds)[0] == rule.decide(p, columns)).all()
        python = median_seconds(lambda rule=rule, columns=columns: rule.decide(p, columns))
        onnx = median_seconds(lambda session=session, feeds=feeds: run_in_batches(session, feeds))
        show(f"the rule, {criterion}", rows, python, onnx)


def bench_classifiers(place: Path, rows: int) -> None:
    data = eh.datasets.make_zafar(5000, random_state=0)
    X = np.ascontiguousarray(np.tile(data.X, (-(-rows // len(data.X)), 1))[:rows])
    for name, model in MODELS.items():
        fair = eh.FairClassifier(model, criterion="demographic_parity", tolerance=0.1, cv=2, random_state=0)
        fair.fit(data.X, data.y, sensitive_features=data.group)
        classifier_to_onnx(fair, place / "fair.onnx", data.X)
        session = open_session(place / "fair.onnx")
        python = median_seconds(lambda fair=fair: fair.predict(X), 3)
        onnx = median_seconds(lambda session=session: run_in_batches(session, {"X": X}), 3)
        show(f"a classifier, {name}", rows, python, onnx)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args([] if argv is None else argv).rows
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench_rules(Path(folder), rows)
        bench_classifiers(Path(folder), rows // 10)


if __name__ == "__main__":
    main()
