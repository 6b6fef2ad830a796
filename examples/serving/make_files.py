"""Train a small classifier and write the files that the services here use.

``python examples/serving/make_files.py folder`` writes ``rule.json``, ``rule.onnx``, ``fair.onnx``, a Triton model
repository under ``models`` and the warehouse view in ``view.sql``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from triton_repository import add_model
from warehouse_view import create_view

import evenhand as eh
from evenhand.export.onnx import classifier_to_onnx, rule_to_onnx


def make_files(folder: Path, rows: int = 4000) -> eh.FairClassifier:
    """Write the files into a folder and return the classifier behind them."""
    data = eh.datasets.make_zafar(rows, random_state=0)
    sex = np.where(np.asarray(data.group) == "0", "F", "M")
    fair = eh.FairClassifier(LogisticRegression(), criterion="demographic_parity", tolerance=0.05, random_state=0)
    fair.fit(data.X, data.y, sensitive_features={"sex": sex})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rule.json").write_text(fair.rule_.to_json(), encoding="utf-8")
    rule_to_onnx(fair.rule_, folder / "rule.onnx")
    classifier_to_onnx(fair, folder / "fair.onnx", data.X)
    add_model(folder / "rule.onnx", folder / "models", "fair_rule")
    add_model(folder / "fair.onnx", folder / "models", "fair_classifier")
    view = create_view(fair.rule_, "decided", "scored", p_y="p", p_group={"F": "p_f", "M": "p_m"}, dialect="duckdb")
    (folder / "view.sql").write_text(view + ";\n", encoding="utf-8")
    return fair


if __name__ == "__main__":
    make_files(Path(sys.argv[1] if len(sys.argv) > 1 else "served"))
