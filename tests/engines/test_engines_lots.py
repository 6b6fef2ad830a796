"""Mixtures applied by the engines and on the command line: the same lots and decisions as in Python."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.cli import main
from evenhand.engines import arrow, duckdb
from scored_rows import JOINT, draw

NAMES = ["--label", "y", "--score", "p", "--sensitive", "sex"]
SCORES = [f"--joint-score={label},{group}={column}" for (label, group), column in JOINT.items()]


@pytest.fixture(scope="module")
def table():
    rows = draw(1500, seed=3)
    keep = [value is not None for value in rows["sex"].to_pylist()]
    rows = rows.filter(pa.array(keep))
    n = rows.num_rows
    return rows.append_column("id", pa.array(np.arange(n) * 7919 + 5)).append_column(
        "name", pa.array([f"person {k}" for k in range(n)])
    )


@pytest.fixture(scope="module")
def mixture(table):
    p, joint = arrays(table)
    return eh.learn_rule(
        table["y"].to_numpy(), table["sex"].to_numpy(zero_copy_only=False), p, joint, criterion="eo", tolerance=0.0,
        randomize=True,
    )  # fmt: skip


def arrays(table):
    p = table["p"].to_numpy()
    return p, np.column_stack([table[name].to_numpy() for name in JOINT.values()]).reshape(len(p), 2, 2)


def check(found, mixture, table, key):
    p, joint = arrays(table)
    keys = None if key is None else table[key].to_numpy(zero_copy_only=False)
    assert found["decision"].to_pylist() == mixture.decide(p, joint, key=keys).tolist()
    assert found["expected_decision"].to_pylist() == mixture.expected_decision(p, joint).tolist()
    assert found["lot"].to_pylist() == mixture.lots(p, joint, key=keys).tolist()
    base = (2 * p - 1 > 0).astype(int)
    assert found["flipped"].to_pylist() == (mixture.decide(p, joint, key=keys) != base).tolist()
    np.testing.assert_allclose(found["bias_score_1"].to_numpy(), mixture.bias_scores(p, joint)[:, 0], rtol=1e-12)
    assert sum(0 < chance < 1 for chance in found["expected_decision"].to_pylist()) > 0


@pytest.mark.parametrize("key", ["id", "name", None])
def test_arrow_and_duckdb_draw_as_python_does(mixture, table, key):
    options = {"p_y": "p", "p_group": JOINT, "key": key}
    check(arrow.apply(mixture, table, **options).read_all(), mixture, table, key)
    check(duckdb.apply(mixture, table, **options).to_arrow_table(), mixture, table, key)


def test_spark_draws_as_python_does(mixture, table, spark):
    from evenhand.engines import spark as engine

    small = table.slice(0, 400).select(["p", *JOINT.values(), "id", "name"])
    frame = spark.createDataFrame(small)
    for key in ("id", "name", None):
        found = engine.apply(mixture, frame, p_y="p", p_group=JOINT, key=key).toArrow()
        check(found, mixture, small, key)


def test_spark_draws_in_strata_that_are_not_compared(table, spark):
    from evenhand.engines import spark as engine

    p, joint = arrays(table)
    numbers = np.arange(len(p))
    job = np.array(["a", "b", None], dtype=object)[numbers % 3]
    floor = np.array([1, 2, None], dtype=object)[numbers // 3 % 3]
    criterion = eh.DemographicParity(within="job", thin=5) & eh.DemographicParity(within="floor", thin=5)
    mixture = eh.learn_rule(
        table["y"].to_numpy(), table["sex"].to_numpy(zero_copy_only=False), p, joint, criterion=criterion,
        tolerance=0.0, strata={"job": job, "floor": floor}, randomize=True,
    )  # fmt: skip
    strata = {"job": np.where(numbers % 7 == 3, "new", job), "floor": np.where(numbers % 5 == 2, 9, floor)}
    rows = table.select(["p", *JOINT.values(), "id"])
    for name, kind in (("job", pa.string()), ("floor", pa.int64())):
        rows = rows.append_column(name, pa.array(strata[name].tolist(), kind))
    some = slice(0, 400)
    found = engine.apply(mixture, spark.createDataFrame(rows.slice(0, 400)), p_y="p", p_group=JOINT, key="id").toArrow()
    inside = {name: column[some] for name, column in strata.items()}
    expected = mixture.expected_decision(p[some], joint[some], strata=inside)
    assert found["expected_decision"].to_pylist() == expected.tolist()
    keys = table["id"].to_numpy()[some]
    assert found["decision"].to_pylist() == mixture.decide(p[some], joint[some], strata=inside, key=keys).tolist()


@pytest.mark.parametrize("engine", [arrow, duckdb], ids=["arrow", "duckdb"])
def test_a_key_that_cannot_be_one_is_refused(engine, mixture, table):
    rule = mixture.rules[0]
    options = {"p_y": "p", "p_group": JOINT}

    def read(made):
        return made.read_all() if engine is arrow else made.to_arrow_table()

    with pytest.raises(eh.InputError, match="not randomized"):
        read(engine.apply(rule, table, **options, key="id"))
    with pytest.raises(eh.InputError, match="no column 'idd'"):
        read(engine.apply(mixture, table, **options, key="idd"))
    with pytest.raises(eh.InputError, match="key"):
        read(engine.apply(mixture, table, **options, key=5))
    with pytest.raises(eh.InputError, match="key"):
        read(engine.apply(mixture, table, **options, key="w"))


def test_duckdb_says_which_rows_have_no_key(mixture, table):
    bad = table.slice(0, 3).append_column("gone", pa.array([1, None, 3]))
    made = duckdb.apply(mixture, bad, p_y="p", p_group=JOINT, key="gone")
    with duckdb.plain_errors(), pytest.raises(Exception, match="no valid key for its random draw"):
        made.fetchall()
    with pytest.raises(eh.InputError, match="key must have a whole number or a text in each row"):
        arrow.apply(mixture, bad, p_y="p", p_group=JOINT, key="gone").read_all()


@pytest.fixture(scope="module")
def files(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lots")
    pq.write_table(table, folder / "rows.parquet")
    pcsv.write_csv(table.select(["p", *JOINT.values(), "y", "sex", "id", "name"]), folder / "rows.csv")
    code = main(
        ["fit", str(folder / "rows.parquet"), *NAMES, *SCORES, "--criterion", "eo", "--tolerance", "0", "--randomize",
         "--safety", "0", "-o", str(folder / "mixed.json"), "--card", str(folder / "card.md"), "--report",
         str(folder / "report.html")]
    )  # fmt: skip
    assert code == 0
    return folder


def test_fit_writes_a_mixture_and_says_so(files, mixture, capsys):
    read = eh.Mixture.from_json((files / "mixed.json").read_text())
    assert read.weights == mixture.weights
    assert read.learned_from["columns"]["score"] == "p"
    assert "It is randomized between" in (files / "card.md").read_text()
    assert "depend on a random draw" in (files / "report.html").read_text()
    single = files / "single.json"
    strict = ["--criterion", "eo", "--tolerance", "0.01", "--safety", "0"]
    assert main(["fit", str(files / "rows.parquet"), *NAMES, *SCORES, *strict, "-o", str(single)]) == 0
    assert "the cost of determinism" in capsys.readouterr().out
    assert json.loads(single.read_text())["learned_from"]["determinism"]["cost"] >= 0.0


@pytest.mark.parametrize("engine", [None, "duckdb"])
@pytest.mark.parametrize("key", ["id", "name", None])
def test_apply_draws_by_key(files, mixture, table, key, engine):
    output = files / "decided.parquet"
    arguments = [*(["--key", key] if key else []), *(["--engine", engine] if engine else [])]
    assert main(["apply", str(files / "mixed.json"), str(files / "rows.parquet"), "-o", str(output), *arguments]) == 0
    check(pq.read_table(output), mixture, table, key)


def test_text_and_numbers_of_a_csv_file_are_the_same_keys(files, mixture, table):
    """A CSV file that becomes a CSV file is read as text; the ids are whole numbers all the same."""
    output = files / "decided.csv"
    assert main(["apply", str(files / "mixed.json"), str(files / "rows.csv"), "-o", str(output), "--key", "id"]) == 0
    p, joint = arrays(table)
    decided = pcsv.read_csv(output)["decision"].to_pylist()
    assert decided == mixture.decide(p, joint, key=table["id"].to_numpy()).tolist()
    code = main(["audit", str(output), "--label", "y", "--sensitive", "sex", "--decision", "decision"])
    assert code in (0, 1, 3)


def test_explain_names_the_lot(files, mixture, table, capsys):
    p, joint = arrays(table)
    receipts = mixture.explain(p, joint, key=table["id"].to_numpy())
    row = next(k for k, receipt in enumerate(receipts) if receipt.by_lot)
    at = ["explain", str(files / "mixed.json"), str(files / "rows.parquet"), "--at", str(row)]
    assert main([*at, "--key", "id"]) == 0
    said = capsys.readouterr().out
    assert f"the lot {receipts[row].lot:.4f} is" in said
    assert main([*at, "--key", "id", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)[0]
    assert told["lot"] == receipts[row].lot
    assert told["decision"] == receipts[row].decision


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["apply", "single.json", "rows.parquet", "-o", "x.parquet", "--key", "id"], "not randomized"),
        (["apply", "mixed.json", "rows.parquet", "-o", "x.parquet", "--key", "idd"], "no column 'idd'"),
        (["apply", "mixed.json", "rows.parquet", "-o", "x.parquet", "--key", "p"], "key"),
        (["explain", "single.json", "rows.parquet", "--at", "0", "--key", "id"], "not randomized"),
        (["explain", "mixed.json", "rows.parquet", "--at", "0", "--key", "idd"], "no column 'idd'"),
    ],
)
def test_wrong_keys_on_the_command_line(files, mixture, arguments, says, capsys):
    (files / "single.json").write_text(mixture.rules[0].noting(**{"columns": columns_of(files)}).to_json())
    paths = [str(files / a) if a.endswith((".json", ".parquet")) else a for a in arguments]
    assert main(paths) == 2
    assert says in capsys.readouterr().err


def columns_of(files):
    return json.loads((files / "mixed.json").read_text())["rules"][0]["learned_from"]["columns"]


def test_another_search_does_not_go_with_lots(files, capsys):
    arguments = ["fit", str(files / "rows.parquet"), *NAMES, *SCORES, "--criterion", "eo", "--randomize"]
    assert main([*arguments, "-o", str(files / "no.json"), "--search", "lines"]) == 2
    assert "randomize" in capsys.readouterr().err
    assert not (files / "no.json").exists()


def test_a_saved_classifier_draws_lots_by_key(files, table):
    X = table.select(["p", "p0f", "p0m"]).to_pandas()
    fair = eh.FairClassifier(LogisticRegression(), tolerance=0.0, safety=0.0, cv=2, randomize=True, random_state=0)
    fair.fit(X, table["y"].to_numpy(), sensitive_features=table["sex"].to_numpy(zero_copy_only=False))
    saved, output = files / "fair.skops", files / "by_classifier.parquet"
    eh.io.save(fair, saved)
    assert main(["apply", str(saved), str(files / "rows.parquet"), "-o", str(output), "--key", "name"]) == 0
    expected = fair.predict(X, key=table["name"].to_pylist())
    assert pq.read_table(output)["decision"].to_pylist() == expected.tolist()
