"""The examples of docs/serving.md run, and decide as Python does."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from fastapi.testclient import TestClient
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from jinja2 import Template

import evenhand as eh

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "serving"


@pytest.fixture(scope="module")
def modules():
    import importlib

    sys.path.insert(0, str(EXAMPLES))
    names = ("dbt_test", "make_files", "onnx_service", "reasons", "rule_service", "triton_repository", "warehouse_view")
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(EXAMPLES))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def fair(modules, folder):
    return modules["make_files"].make_files(folder)


@pytest.fixture(scope="module")
def rows():
    data = eh.datasets.make_zafar(300, random_state=1)
    return data.X, data.p_y, data.p_group


def test_the_rule_goes_behind_fastapi(modules, folder, fair, rows):
    _, p_y, p_group = rows
    rule = eh.Rule.from_json((folder / "rule.json").read_text(encoding="utf-8"))
    client = TestClient(modules["rule_service"].make_app(rule))
    answer = client.post("/decide", json={"p_y": p_y.tolist(), "p_group": p_group.tolist()})
    assert answer.status_code == 200
    assert answer.json()["decision"] == rule.decide(p_y, p_group).tolist()
    assert answer.json()["fair_margin"] == rule.decision_function(p_y, p_group).tolist()
    words = client.post("/explain", json={"p_y": [0.45], "p_group": [[0.1, 0.9]]}).json()
    assert words == [str(rule.explain([0.45], [[0.1, 0.9]])[0])]
    assert client.get("/rule").json() == {"groups": {"sex": ["F", "M"]}, "labels": [0, 1], "tolerance": 0.05}


@pytest.mark.parametrize(
    "body",
    [
        {"p_y": [], "p_group": []},
        {"p_y": [1.5], "p_group": [[0.5, 0.5]]},
        {"p_y": [None], "p_group": [[0.5, 0.5]]},
        {"p_y": ["NaN"], "p_group": [[0.5, 0.5]]},
        {"p_y": [0.5], "p_group": [[0.5, 0.9]]},
        {"p_y": [0.5], "p_group": [[0.5]]},
        {"p_y": [0.5, 0.5], "p_group": [[0.5, 0.5]]},
        {"p_y": [0.5, 0.5], "p_group": [[0.5, 0.5], [1.0]]},
        {"p_y": [0.5]},
    ],
)
def test_the_service_answers_bad_rows_with_422(modules, fair, body):
    client = TestClient(modules["rule_service"].make_app(fair.rule_))
    for path in ("/decide", "/explain"):
        assert client.post(path, json=body).status_code == 422


NO_JSON_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"']


@pytest.mark.parametrize("sign", NO_JSON_NUMBERS)
@pytest.mark.parametrize(
    "body",
    [
        '{"p_y": [%s], "p_group": [[0.5, 0.5]]}', '{"p_y": [0.5], "p_group": [[%s, 0.5]]}', '{"p_y": %s}', "%s",
        '{"p_y": [0.5, %s], "p_group": %s}', '{"unknown": %s, "p_y": [2.0]}',
    ],
)  # fmt: skip
def test_numbers_that_json_does_not_have_are_answered_with_422_and_the_reason(modules, fair, body, sign):
    client = TestClient(modules["rule_service"].make_app(fair.rule_), raise_server_exceptions=False)
    for path in ("/decide", "/explain"):
        answer = client.post(path, content=body.replace("%s", sign), headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["msg"]


@pytest.mark.parametrize("sign", [*NO_JSON_NUMBERS, "1e308", "-1e308"])
@pytest.mark.parametrize("body", ['{"X": [[0.1, %s]]}', '{"X": [[0.1, 0.2], [%s, %s]]}', '{"X": %s}'])
def test_the_onnx_service_answers_such_numbers_too(modules, folder, fair, body, sign):
    client = TestClient(modules["onnx_service"].make_app(folder / "fair.onnx"), raise_server_exceptions=False)
    content = body.replace("%s", sign)
    answer = client.post("/decide", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in ((200, 422) if "1e308" in sign else (422,))
    assert answer.json()


def test_the_reasons_of_a_long_request_are_a_short_answer(modules, fair):
    client = TestClient(modules["rule_service"].make_app(fair.rule_))
    answer = client.post("/decide", json={"p_y": [2.0] * 10_000, "p_group": []})
    assert len(answer.json()["detail"]) == modules["reasons"].MOST_REASONS


def test_the_onnx_file_goes_behind_fastapi(modules, folder, fair, rows):
    X = rows[0]
    client = TestClient(modules["onnx_service"].make_app(folder / "fair.onnx"))
    answer = client.post("/decide", json={"X": X.tolist()}).json()
    assert answer["label"] == fair.predict(X).tolist()
    np.testing.assert_allclose(answer["fair_margin"], fair.decision_function(X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(answer["probability"], fair.predict_proba(X)[:, 1], rtol=0, atol=1e-12)
    assert client.post("/decide", json={"X": [[1.0]]}).status_code == 422
    assert client.post("/decide", json={"X": []}).status_code == 422


def test_the_services_are_made_from_the_environment(modules, folder, fair, monkeypatch):
    monkeypatch.setenv("EVENHAND_RULE", str(folder / "rule.json"))
    monkeypatch.setenv("EVENHAND_MODEL", str(folder / "fair.onnx"))
    assert TestClient(modules["rule_service"].from_environment()).get("/rule").status_code == 200
    assert TestClient(modules["onnx_service"].from_environment()).get("/docs").status_code == 200


def triton_config():
    """Return the part of Triton's ModelConfig message that the examples use, as a message class."""
    field, file = descriptor_pb2.FieldDescriptorProto, descriptor_pb2.FileDescriptorProto()
    file.name, file.package, file.syntax = "model_config.proto", "inference", "proto3"
    kinds = file.enum_type.add(name="DataType")
    for number, name in ((0, "INVALID"), (1, "BOOL"), (9, "INT64"), (11, "FP32"), (12, "FP64"), (13, "STRING")):
        kinds.value.add(name=f"TYPE_{name}", number=number)

    def message(name, *fields):
        found = file.message_type.add(name=name)
        for number, (label, kind, type_name) in fields:
            repeated = label.endswith("*")
            entry = found.field.add(name=label.rstrip("*"), number=number, type=kind)
            entry.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if type_name:
                entry.type_name = f".inference.{type_name}"
        return found

    tensor = (
        (1, ("name", field.TYPE_STRING, None)),
        (2, ("data_type", field.TYPE_ENUM, "DataType")),
        (3, ("dims*", field.TYPE_INT64, None)),
    )
    message("ModelInput", *tensor)
    message("ModelOutput", *tensor)
    group = message(
        "ModelInstanceGroup",
        (2, ("count", field.TYPE_INT32, None)),
        (4, ("kind", field.TYPE_ENUM, "ModelInstanceGroup.Kind")),
    )
    kind = group.enum_type.add(name="Kind")
    for number, name in enumerate(("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")):
        kind.value.add(name=name, number=number)
    message("MapEntry", (1, ("key", field.TYPE_STRING, None)), (2, ("value", field.TYPE_STRING, None)))
    message(
        "ModelEnsemblingStep",
        (1, ("model_name", field.TYPE_STRING, None)),
        (2, ("model_version", field.TYPE_INT64, None)),
        (3, ("input_map*", field.TYPE_MESSAGE, "MapEntry")),
        (4, ("output_map*", field.TYPE_MESSAGE, "MapEntry")),
    )
    message("ModelEnsembling", (1, ("step*", field.TYPE_MESSAGE, "ModelEnsemblingStep")))
    message(
        "ModelConfig",
        (1, ("name", field.TYPE_STRING, None)),
        (2, ("platform", field.TYPE_STRING, None)),
        (4, ("max_batch_size", field.TYPE_INT32, None)),
        (5, ("input*", field.TYPE_MESSAGE, "ModelInput")),
        (6, ("output*", field.TYPE_MESSAGE, "ModelOutput")),
        (7, ("instance_group*", field.TYPE_MESSAGE, "ModelInstanceGroup")),
        (15, ("ensemble_scheduling", field.TYPE_MESSAGE, "ModelEnsembling")),
        (17, ("backend", field.TYPE_STRING, None)),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


@pytest.mark.parametrize("name", ["fair_rule", "fair_classifier"])
def test_the_triton_repository_fits_its_onnx_files(folder, fair, name):
    model = folder / "models" / name
    assert sorted(str(path.relative_to(model)) for path in model.rglob("*") if path.is_file()) == [
        "1/model.onnx",
        "config.pbtxt",
    ]
    config = text_format.Parse((model / "config.pbtxt").read_text(encoding="utf-8"), triton_config()())
    assert (config.name, config.backend, config.max_batch_size) == (name, "onnxruntime", 0)
    session = onnxruntime.InferenceSession(str(model / "1" / "model.onnx"), providers=["CPUExecutionProvider"])
    types = {"tensor(double)": 12, "tensor(int64)": 9, "tensor(string)": 13, "tensor(bool)": 1}
    for written, real in ((config.input, session.get_inputs()), (config.output, session.get_outputs())):
        found = [(t.name, t.data_type, list(t.dims)) for t in written]
        assert found == [(t.name, types[t.type], [s if isinstance(s, int) else -1 for s in t.shape]) for t in real]


def test_the_ensemble_in_the_docs_is_a_triton_configuration(folder, fair):
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    block = next(block for block in re.findall(r"```text\n(.*?)```", text, re.S) if "ensemble_scheduling" in block)
    config = text_format.Parse(block, triton_config()())
    step = next(step for step in config.ensemble_scheduling.step if step.model_name == "fair_rule")
    session = onnxruntime.InferenceSession(str(folder / "rule.onnx"), providers=["CPUExecutionProvider"])
    assert {entry.key for entry in step.input_map} == {tensor.name for tensor in session.get_inputs()}
    assert {entry.key for entry in step.output_map} <= {tensor.name for tensor in session.get_outputs()}
    produced = {entry.value for s in config.ensemble_scheduling.step for entry in s.output_map}
    consumed = {entry.value for s in config.ensemble_scheduling.step for entry in s.input_map}
    assert {tensor.name for tensor in config.output} <= produced
    assert consumed <= produced | {tensor.name for tensor in config.input}


COLUMNS = {"p_y": "p", "p_group": {"F": "p_f", "M": "p_m"}}


def test_a_view_in_sqlite_decides_rows_as_they_come(modules, fair, rows):
    _, p_y, p_group = rows
    with sqlite3.connect(":memory:") as connection:
        connection.execute('CREATE TABLE "scored rows" (id INTEGER, p REAL, p_f REAL, p_m REAL)')
        create_view = modules["warehouse_view"].create_view
        connection.execute(create_view(fair.rule_, "decided", "scored rows", dialect="sqlite", **COLUMNS))
        table = zip(range(len(p_y)), p_y.tolist(), *p_group.T.tolist(), strict=True)
        connection.executemany('INSERT INTO "scored rows" VALUES (?, ?, ?, ?)', table)
        found = connection.execute("SELECT decision, fair_margin FROM decided ORDER BY id").fetchall()
    assert [row[0] for row in found] == fair.rule_.decide(p_y, p_group).tolist()
    assert [row[1] for row in found] == fair.rule_.decision_function(p_y, p_group).tolist()


def test_the_view_that_was_written_runs_in_duckdb(folder, fair, rows):
    duckdb = pytest.importorskip("duckdb")
    _, p_y, p_group = rows
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE scored (id INTEGER, p DOUBLE, p_f DOUBLE, p_m DOUBLE)")
        connection.execute((folder / "view.sql").read_text(encoding="utf-8"))
        table = list(zip(range(len(p_y)), p_y.tolist(), *p_group.T.tolist(), strict=True))
        connection.executemany("INSERT INTO scored VALUES (?, ?, ?, ?)", table)
        found = connection.execute("SELECT decision, fair_margin FROM decided ORDER BY id").fetchall()
    assert [row[0] for row in found] == fair.rule_.decide(p_y, p_group).tolist()
    assert [row[1] for row in found] == fair.rule_.decision_function(p_y, p_group).tolist()


def test_the_files_are_made_by_one_command(tmp_path):
    subprocess.run([sys.executable, str(EXAMPLES / "make_files.py"), "served"], cwd=tmp_path, check=True, timeout=900)
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == [
        "fair.onnx",
        "models",
        "rule.json",
        "rule.onnx",
        "view.sql",
    ]


def test_every_python_block_of_the_docs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/serving.md", "exec"), space)


@pytest.mark.parametrize(("gap", "code"), [(0.0, 0), (0.6, 1)])
def test_the_workflow_fails_a_build_by_the_exit_code(gap, code, tmp_path):
    """Every command of the workflow but the installation is run as it is written."""
    steps = yaml.safe_load((EXAMPLES / "fairness.yml").read_text())["jobs"]["audit"]["steps"]
    commands = [step["run"] for step in steps if "run" in step and not step["run"].startswith("pip ")]
    rng = np.random.default_rng(0)
    sex = np.repeat(["F", "M"], 2000)
    p = np.where(sex == "F", 1.0 - gap, 1.0) * rng.random(4000)
    pq.write_table(pa.table({"p": p, "y": (rng.random(4000) < p).astype(int), "sex": sex}), tmp_path / "scores.parquet")
    (command,) = commands
    words = [sys.executable, "-m", *shlex.split(command)]
    assert words[2] == "evenhand"
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == code
    assert (tmp_path / "fairness.html").exists()


def test_the_dbt_test_finds_decisions_that_are_not_the_rules(modules):
    rule = eh.Rule.from_criterion(
        "dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.2], classes=("{{ no }}", "it's {% yes %}")
    )
    p, f = np.random.default_rng(0).random((2, 100))
    right = rule.decide(p, np.column_stack([f, 1 - f])).tolist()
    text = modules["dbt_test"].dbt_test(
        rule, "decided", p_y="p", p_group={"F": "f", "M": None}, decision="choice", dialect="duckdb"
    )
    statement = Template(text).render(ref=lambda model: model)
    for row, wrong in ((None, None), (7, "other"), (8, None)):
        choice = [wrong if k == row else label for k, label in enumerate(right)]
        connection = duckdb.connect()
        connection.register("decided", pa.table({"id": range(100), "p": p, "f": f, "choice": choice}))
        found = connection.execute(statement).fetchall()
        assert [line[0] for line in found] == ([] if row is None else [row])
    with pytest.raises(ValueError, match="rename it"):
        modules["dbt_test"].dbt_test(rule, "x') }} drop", p_y="p", p_group={"F": "f", "M": None}, dialect="duckdb")
