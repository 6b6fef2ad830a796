"""An exported classifier in onnxruntime-node, whose library for the processor comes inside the package."""

from __future__ import annotations

import json
import subprocess
import warnings

import lightgbm
import pytest

import evenhand as eh
from evenhand.export.onnx import classifier_to_onnx

PACKAGE = "onnxruntime-node@1.30.0"
SCRIPT = """
const runtime = require("onnxruntime-node");
const given = JSON.parse(require("fs").readFileSync(process.argv[2]));
(async () => {
  const session = await runtime.InferenceSession.create(given.model);
  const X = new runtime.Tensor("float64", Float64Array.from(given.X.flat()), [given.X.length, given.X[0].length]);
  const found = await session.run({ X });
  const label = Array.from(found.label.data, Number);
  console.log(JSON.stringify({ label, margin: Array.from(found.fair_margin.data) }));
})();
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    # Its script would fetch libraries for graphics cards, which are not needed.
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (folder / "decide.js").write_text(SCRIPT)
    return folder


@pytest.mark.parametrize("kind", ["lightgbm", "hist"])
def test_node_decides_as_python_does(kind, node):
    from sklearn.ensemble import HistGradientBoostingClassifier

    data = eh.datasets.make_zafar(1000, random_state=0)
    model = {
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=20, verbose=-1),
        "hist": HistGradientBoostingClassifier(max_iter=20),
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fair = eh.FairClassifier(model, criterion="eo", tolerance=0.1, cv=2, random_state=0)
        fair.fit(data.X, data.y, sensitive_features=data.group)
        classifier_to_onnx(fair, node / f"{kind}.onnx", data.X)
        expected = fair.predict(data.X).tolist(), fair.decision_function(data.X).tolist()
    (node / "given.json").write_text(json.dumps({"model": str(node / f"{kind}.onnx"), "X": data.X.tolist()}))
    run = ["node", "decide.js", "given.json"]
    done = subprocess.run(run, cwd=node, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["label"] == expected[0]
    assert found["margin"] == pytest.approx(expected[1], abs=1e-5)
