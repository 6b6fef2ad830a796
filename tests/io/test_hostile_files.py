"""Whatever a file holds, load answers with one error of evenhand's and executes nothing."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from classifiers import paper_classifier
from evenhand.errors import EvenhandError, ModelFormatError, RuleFormatError, UntrustedTypesError


def make(model, **options):
    data = eh.datasets.make_zafar(300, random_state=0)
    options = {"criterion": "dp", "tolerance": 0.4, "cv": 2, "random_state": 0, **options}
    return paper_classifier(model, **options).fit(data.X, data.y, sensitive_features=data.group)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "fair.skops"
    eh.io.save(make(LogisticRegression()), path)
    return path.read_bytes()


@pytest.fixture
def unread(monkeypatch):
    """Let save write what it would refuse, because load could not read it back."""
    monkeypatch.setattr("evenhand.io._check_readable", lambda *arguments: None)


def members_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def load(data, tmp_path, **options):
    (tmp_path / "hostile.skops").write_bytes(data)
    return eh.io.load(tmp_path / "hostile.skops", **options)


def change_schema(data, change):
    members = members_of(data)
    schema = json.loads(members["schema.json"])
    change(schema)
    return pack({**members, "schema.json": json.dumps(schema)})


def change_about(data, **fields):
    members = members_of(data)
    return pack({**members, "evenhand.json": json.dumps({**json.loads(members["evenhand.json"]), **fields})})


def test_the_untouched_file_loads(good, tmp_path):
    assert load(good, tmp_path).rule_.tolerance == 0.4
    assert load(pack(members_of(good)), tmp_path).rule_.tolerance == 0.4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a file of evenhand.io.save, or was cut off"),
        (b"PK\x03\x04", "cut off"),
        (b"\x80\x04\x95pickle", "not a file"),
        (b"{}", "not a file"),
        (pack({"schema.json": "{}"}), "not written by evenhand.io.save"),
        (pack({"evenhand.json": "[]"}), "not written by evenhand.io.save"),
        (pack({"evenhand.json": "{"}), "not a file"),
        (pack({"evenhand.json": b"\xff\xfe"}), "not a file"),
        (pack({"evenhand.json": "[" * 100_000}), "not a file"),
        (pack({"evenhand.json": '{"format": "evenhand-estimator", "version": 1}'}), "damaged"),
    ],
)
def test_what_is_no_saved_estimator_is_refused(data, message, tmp_path):
    with pytest.raises(ModelFormatError, match=message):
        load(data, tmp_path)


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    with pytest.raises(ModelFormatError, match="no such file"):
        eh.io.load(tmp_path / "none.skops")
    with pytest.raises(ModelFormatError, match="cannot be read"):
        eh.io.load(tmp_path)


def test_every_truncation_is_refused(good, tmp_path):
    for length in [*range(0, 400, 7), *np.linspace(400, len(good) - 1, 80).astype(int).tolist()]:
        with pytest.raises(ModelFormatError):
            load(good[:length], tmp_path)


def test_a_flipped_byte_is_refused_or_does_no_harm(good, tmp_path):
    generator = random.Random(0)
    longest = 0
    for _ in range(300):
        data = bytearray(good)
        for _ in range(generator.choice([1, 4, 30])):
            data[generator.randrange(len(data))] ^= generator.randrange(1, 256)
        try:
            load(bytes(data), tmp_path)
        except EvenhandError as error:
            longest = max(longest, len(str(error)))
    assert 0 < longest < 2000


def test_versions_are_checked(good, tmp_path):
    with pytest.raises(ModelFormatError, match="has version 99, but this evenhand reads versions up to 2: update"):
        load(change_about(good, version=99), tmp_path)
    for version in ("1", None, True, 0, 1.5):
        with pytest.raises(ModelFormatError, match="must be a whole number"):
            load(change_about(good, version=version), tmp_path)
    with pytest.raises(ModelFormatError, match="not written by"):
        load(change_about(good, format="other"), tmp_path)
    with pytest.raises(ModelFormatError, match="protocol 99"):
        load(change_schema(good, lambda schema: schema.update(protocol=99)), tmp_path)


@pytest.mark.parametrize("name", ["../escape.npy", "/etc/passwd", "rules/../../x.json", "a.pkl", "rules/1.json\n"])
def test_members_that_have_no_place_are_refused(good, name, tmp_path):
    with pytest.raises(ModelFormatError, match="which is not expected"):
        load(pack({**members_of(good), name: "x"}), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.skops"]


def test_bombs_are_refused_before_they_are_opened(good, tmp_path):
    squeezed = pack({**members_of(good), "1.npy": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
    assert len(squeezed) < 1_000_000
    with pytest.raises(ModelFormatError, match="compressed or encrypted"):
        load(squeezed, tmp_path)
    # A directory that claims more than the file has: the sizes are 4 bytes each, 20 after the signature.
    lying = bytearray(good)
    entry = lying.rindex(b"PK\x01\x02")
    lying[entry + 24 : entry + 28] = struct.pack("<I", 2**31)
    with pytest.raises(ModelFormatError, match="sizes larger than the file"):
        load(bytes(lying), tmp_path)


def nodes_of(schema, name):
    """Return the nodes of a schema of one class; the same object is written wherever it is referred to."""
    waiting, found = [schema], []
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("__class__") == name:
                found.append(node)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return found


ATTACKS = {
    "function": {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"},
    "type": {"__class__": "Popen", "__module__": "subprocess", "__loader__": "TypeNode"},
    "object": {
        "__class__": "Popen",
        "__module__": "subprocess",
        "__loader__": "ConstructorFromReduceNode",
        "content": {
            "__class__": "tuple",
            "__module__": "builtins",
            "__loader__": "TupleNode",
            "content": [
                {
                    "__class__": "str",
                    "__module__": "builtins",
                    "__loader__": "JsonNode",
                    "content": '"touch executed"',
                    "is_json": True,
                }
            ],
        },
    },
    "loader": {"__class__": "x", "__module__": "x", "__loader__": "PickleNode", "content": ""},
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("depth", ["attribute", "deep inside"])
def test_an_untrusted_type_is_refused_by_name_wherever_it_is(good, attack, depth, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    node = ATTACKS[attack]

    def change(schema):
        attributes = schema["content"]["content"]
        if depth == "attribute":
            attributes["verbose"] = node
        else:
            for model in nodes_of(schema, "LogisticRegression"):
                model["content"]["content"]["C"] = node

    name = f"{node['__module__']}.{node['__class__']}"
    wanted = ModelFormatError if attack == "loader" else UntrustedTypesError
    with pytest.raises(wanted, match=name) as caught:
        load(change_schema(good, change), tmp_path)
    if attack != "loader":
        assert caught.value.names == (name,)
    assert not (tmp_path / "executed").exists()


def test_an_evil_class_that_can_be_imported_is_not(good, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("open('executed', 'w').close()\nclass Evil: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    evil = {"__class__": "Evil", "__module__": "evil_module", "__loader__": "ObjectNode"}
    with pytest.raises(UntrustedTypesError, match=r"evil_module\.Evil"):
        load(change_schema(good, lambda schema: schema["content"]["content"].update(verbose=evil)), tmp_path)
    assert not (tmp_path / "executed").exists()


def test_a_foreign_root_and_a_classifier_without_a_rule_are_refused(good, tmp_path):
    foreign = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": "1", "is_json": True}
    with pytest.raises(ModelFormatError, match="not an estimator of evenhand"):
        load(change_schema(good, lambda schema: schema.update(foreign)), tmp_path)
    with pytest.raises(ModelFormatError, match="without a rule"):
        load(change_schema(good, lambda schema: schema["content"]["content"].pop("rule_")), tmp_path)


def test_a_schema_without_end_is_refused(good, tmp_path):
    members = members_of(good)
    for schema in ("[" * 100_000, '{"a":' * 50_000, "null", "[]", '{"protocol": 2}', "{}"):
        with pytest.raises(ModelFormatError, match="damaged"):
            load(pack({**members, "schema.json": schema}), tmp_path)


def test_a_rule_in_the_file_is_checked_in_full(good, tmp_path):
    members = members_of(good)
    name = next(name for name in members if name.startswith("rules/"))
    rule = json.loads(members[name])
    rule["events"][0]["weight"] = 7.0
    with pytest.raises(RuleFormatError, match="is inconsistent"):
        load(pack({**members, name: json.dumps(rule)}), tmp_path)
    del members[name]
    with pytest.raises(ModelFormatError, match="damaged"):
        load(pack(members), tmp_path)


@pytest.mark.parametrize("place", ["left", "right", "feature_idx", "categorical", "circle"])
def test_boosted_trees_that_lead_out_of_memory_are_refused(place, tmp_path, unread):
    fair = make(HistGradientBoostingClassifier(max_iter=3))
    nodes = fair.estimator_._predictors[0][0].nodes
    if place == "categorical":
        nodes["is_categorical"][0] = 1
    elif place == "circle":
        nodes["left"][0] = 0
    else:
        nodes[place][0] = 10_000_000 if place != "feature_idx" else 9
    eh.io.save(fair, tmp_path / "fair.skops")
    with pytest.raises(ModelFormatError, match="tree"):
        eh.io.load(tmp_path / "fair.skops")


def forged(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def boosted(tmp_path_factory):
    path = tmp_path_factory.mktemp("boosted") / "fair.skops"
    eh.io.save(make(HistGradientBoostingClassifier(max_iter=3)), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("sizes", lambda a: a + 1, "do not add up"),
        ("sizes", lambda a: a * [0, 1, 1] + [2**62, 0, 0], "do not add up"),
        ("sizes", lambda a: -a, "not numbers of nodes"),
        ("sizes", lambda a: a.astype(float), "not numbers of nodes"),
        ("sizes", lambda a: a[:0], "do not add up"),
        ("sizes", lambda a: a.ravel(), "not numbers of nodes"),
        ("nodes", lambda a: a["value"], "another version of scikit-learn"),
        ("nodes", lambda a: a[:-1], "do not add up"),
        ("nodes", lambda a: a[None], "unexpected form"),
        ("nodes", lambda a: np.array([print], dtype=object), "damaged"),
        ("raw_left_cat_bitsets", lambda a: a.astype(np.int64), "unexpected form"),
        ("raw_left_cat_bitsets", lambda a: a.reshape(-1), "unexpected form"),
        ("raw_left_cat_bitsets", None, "damaged"),
    ],
)
def test_boosted_trees_whose_arrays_do_not_fit_are_refused(boosted, part, change, message, tmp_path):
    load(boosted, tmp_path)
    members = members_of(boosted)
    name = next(name for name in members if name.startswith("trees/") and f".{part}." in name)
    whole = members.pop(name)
    if change is not None:
        members[name] = forged(change(np.load(io.BytesIO(whole))))
    with pytest.raises(ModelFormatError, match=message):
        load(pack(members), tmp_path)


def test_boosted_trees_in_another_place_are_refused(boosted, tmp_path):
    def change(schema):
        for node in nodes_of(schema, "Stored"):
            text = json.dumps(node)
            if "rules/" in text:
                node.update(json.loads(re.sub(r"rules/\d+\.json", "trees/0", text)))

    with pytest.raises(ModelFormatError, match=r"unexpected place|damaged"):
        load(change_schema(boosted, change), tmp_path)


def test_a_few_members_hold_all_trees_of_a_model(boosted):
    members = members_of(boosted)
    trees = [name for name in members if name.startswith("trees/")]
    assert len(trees) == 4 * 2  # of the model and of that of the groups
    assert json.loads(members["evenhand.json"])["version"] == 2
    assert "TreePredictor" not in members["schema.json"].decode()


@pytest.mark.parametrize("model", [RandomForestClassifier(3), GradientBoostingClassifier(n_estimators=3)])
@pytest.mark.parametrize("place", ["left_child", "right_child", "feature"])
def test_trees_that_lead_out_of_memory_are_refused(model, place, tmp_path, unread):
    fair = make(model)
    tree = np.asarray(fair.estimator_.estimators_).ravel()[-1].tree_
    state = tree.__getstate__()
    nodes = state["nodes"].copy()
    nodes[place][0] = 10_000_000
    tree.__setstate__({**state, "nodes": nodes})
    eh.io.save(fair, tmp_path / "fair.skops")
    with pytest.raises(ModelFormatError, match="leads out of the tree"):
        eh.io.load(tmp_path / "fair.skops")


def test_a_forest_whose_trees_read_other_columns_is_refused(tmp_path, unread):
    fair = make(RandomForestClassifier(3))
    wide = RandomForestClassifier(1, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 9)), [0, 1] * 25)
    fair.estimator_.estimators_[-1] = wide.estimators_[0]
    eh.io.save(fair, tmp_path / "fair.skops")
    with pytest.raises(ModelFormatError, match="number of features does not match"):
        eh.io.load(tmp_path / "fair.skops")


def test_a_network_of_another_shape_is_refused(tmp_path):
    from evenhand.paper.models import MLP

    data = eh.datasets.make_zafar(200, random_state=0)
    eh.io.save(MLP(max_epochs=1, random_state=0).fit(data.X, data.y), tmp_path / "mlp.skops")
    members = members_of((tmp_path / "mlp.skops").read_bytes())
    name = next(name for name in members if name.endswith(".safetensors"))
    eh.io.save(MLP(hidden=3, max_epochs=1, random_state=0).fit(data.X, data.y), tmp_path / "other.skops")
    other = members_of((tmp_path / "other.skops").read_bytes())[name]
    for content in (other, members[name][:-9], b"", b"\x80\x04pickle", struct.pack("<Q", 2**60) + b"{}"):
        with pytest.raises(ModelFormatError, match=r"damaged|do not match the size"):
            load(pack({**members, name: content}), tmp_path)
