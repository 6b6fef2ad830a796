"""``evenhand fit --features`` and what follows, through the real command."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.cli import main

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
FIT = ["--label", "hired", "--pos-label", "yes", "--sensitive", "sex"]
ADDED = "decision, fair_margin, flipped, bias_score_1"
DECIDED = f"Decided 180,000 rows. They are in decided.parquet, with the columns {ADDED}.\n"


def evenhand(*arguments, cwd, env=None):
    return subprocess.run(
        [sys.executable, "-m", "evenhand", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, **ONE_THREAD, **(env or {})},
        check=False,
    )


def make_people(seed, rows=1500):
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], rows).astype(object)
    size = rng.normal(size=rows) + (colour == "red")
    sex = np.where(rng.random(rows) < 0.3 + 0.4 * (size > 0), "F", "M")
    hired = np.where(size + rng.normal(size=rows) > 0.5, "yes", "no")
    colour[rng.random(rows) < 0.05] = None
    whole = pa.array(np.where(rng.random(rows) < 0.1, None, rng.integers(0, 9, rows)).tolist(), pa.int64())
    columns = {"size": size, "colour": pa.array(colour, pa.string()), "rooms": whole, "sex": sex, "hired": hired}
    return pa.table(columns)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    for seed, name in enumerate(("train", "new")):
        pq.write_table(make_people(seed), folder / f"{name}.parquet")
    pa.csv.write_csv(make_people(1), folder / "new.csv")
    return folder


@pytest.fixture(scope="module")
def trained(place):
    done = evenhand(
        "fit", "train.parquet", *FIT, "--features", "*", "--criterion", "dp", "--tolerance", "0.08",
        "--test", "new.parquet", "-o", "fair.skops", "--report", "fair.html", "--card", "card.md", cwd=place,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1,500 rows and 3 features" in done.stdout
    assert "demographic parity gap, sex" in done.stdout
    assert "On held-out rows" in done.stdout
    return done


def test_fit_saves_the_whole_classifier_with_report_and_card(place, trained):
    fair = eh.io.load(place / "fair.skops")
    assert fair.classes_.tolist() == ["no", "yes"]
    assert fair.rule_.learned_from["columns"]["features"] == [
        {"name": "size", "kind": "number"},
        {"name": "colour", "kind": "text"},
        {"name": "rooms", "kind": "number"},
    ]
    assert "Fair decisions for new.parquet" in (place / "fair.html").read_text(encoding="utf-8")
    card = (place / "card.md").read_text(encoding="utf-8")
    assert "Held-out rows, with 95% intervals" in card
    assert "evenhand fit train.parquet" in card
    assert "treat it as personal data" in trained.stdout


@pytest.mark.parametrize(("source", "target"), [("new.parquet", "out.parquet"), ("new.csv", "out.csv")])
def test_apply_decides_by_the_classifier_in_a_file(place, trained, source, target):
    done = evenhand("apply", "fair.skops", source, "-o", target, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    table = pq.read_table(place / "new.parquet")
    found = pq.read_table(place / target) if target.endswith("parquet") else pa.csv.read_csv(place / target)
    assert found.column_names[-4:] == ["decision", "fair_margin", "flipped", "bias_score_1"]
    X = np.empty((table.num_rows, 3), dtype=object)
    for j, name in enumerate(("size", "colour", "rooms")):
        X[:, j] = [np.nan if v is None and name == "rooms" else v for v in table[name].to_pylist()]
    fair = eh.io.load(place / "fair.skops")
    assert found["decision"].to_pylist() == fair.predict(X).tolist()
    np.testing.assert_allclose(found["fair_margin"].to_numpy(), fair.decision_function(X), rtol=0, atol=1e-12)
    assert sum(found["flipped"].to_pylist()) == int(
        (fair.predict(X) != np.where(fair.predict_proba(X)[:, 1] > 0.5, "yes", "no")).sum()
    )
    if target.endswith("parquet"):
        assert found.select(table.column_names).equals(table)


def answer(arguments, capsys):
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert "bug in evenhand" not in shown.err
    return code, shown.err


def test_apply_answers_mistakes_in_one_sentence(place, trained, capsys, tmp_path):
    fair, out = place / "fair.skops", tmp_path / "out.parquet"
    table = pq.read_table(place / "new.parquet")
    pq.write_table(table.drop_columns(["rooms"]), tmp_path / "less.parquet")
    code, said = answer(["apply", fair, tmp_path / "less.parquet", "-o", out], capsys)
    assert (code, "no column 'rooms'" in said) == (2, True)
    changed = table.set_column(0, "size", pa.array(["large"] * table.num_rows))
    pq.write_table(changed, tmp_path / "changed.parquet")
    code, said = answer(["apply", fair, tmp_path / "changed.parquet", "-o", out], capsys)
    assert (code, "'size' must contain numbers, as in training" in said) == (2, True)
    text = table.set_column(1, "colour", pa.array(range(table.num_rows)))
    pq.write_table(text, tmp_path / "text.parquet")
    code, said = answer(["apply", fair, tmp_path / "text.parquet", "-o", out], capsys)
    assert (code, "'colour' must contain text, as in training" in said) == (2, True)
    (tmp_path / "bad.csv").write_text("size,colour,rooms\n0.5,red,NA\nlarge,red,1\n")
    code, said = answer(["apply", fair, tmp_path / "bad.csv", "-o", tmp_path / "out.csv"], capsys)
    assert (code, "'size' must contain numbers" in said) == (2, True)
    (tmp_path / "good.csv").write_text("size,colour,rooms\n0.5,007,NA\n -1.5,red,03\n")
    assert answer(["apply", fair, tmp_path / "good.csv", "-o", tmp_path / "good_out.csv"], capsys) == (0, "")
    assert '-1.5","red","03"' in (tmp_path / "good_out.csv").read_text()
    code, said = answer(["apply", fair, place / "new.parquet", "-o", out, "--score", "p"], capsys)
    assert (code, "leave out --score" in said) == (2, True)
    (tmp_path / "cut.skops").write_bytes(fair.read_bytes()[:5000])
    code, said = answer(["apply", tmp_path / "cut.skops", place / "new.parquet", "-o", out], capsys)
    assert (code, "cut off" in said) == (2, True)
    with zipfile.ZipFile(fair) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["schema.json"] = members["schema.json"].replace(
        b"HistGradientBoostingClassifier", b"HistGradientBoostingEvil"
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    (tmp_path / "evil.skops").write_bytes(buffer.getvalue())
    code, said = answer(["apply", tmp_path / "evil.skops", place / "new.parquet", "-o", out], capsys)
    assert (code, "HistGradientBoostingEvil" in said) == (2, True)
    code, said = answer(["apply", tmp_path / "none.skops", place / "new.parquet", "-o", out], capsys)
    assert (code, "there is no such file" in said) == (2, True)
    assert not out.exists()


def test_a_classifier_from_python_is_applied_by_its_feature_names(place, capsys, tmp_path):
    from sklearn.linear_model import LogisticRegression

    frame = pq.read_table(place / "new.parquet").to_pandas()
    X = frame[["size"]].assign(square=frame["size"] ** 2)
    pq.write_table(pa.Table.from_pandas(X.assign(sex=frame["sex"])), tmp_path / "t.parquet")
    known = eh.FairClassifier(
        LogisticRegression(), criterion="dp", cv=2, sensitive_at_predict=True, pos_label="yes", random_state=0
    ).fit(X, frame["hired"], sensitive_features={"sex": frame["sex"]})
    eh.io.save(known, tmp_path / "known.skops")
    code, said = answer(
        ["apply", tmp_path / "known.skops", tmp_path / "t.parquet", "-o", tmp_path / "o.parquet"], capsys
    )
    assert (code, said) == (0, "")
    expected = known.predict(X, sensitive_features={"sex": frame["sex"]})
    assert pq.read_table(tmp_path / "o.parquet")["decision"].to_pylist() == expected.tolist()
    bare = eh.FairClassifier(LogisticRegression(), criterion="dp", cv=2, tolerance=0.3, random_state=0)
    eh.io.save(bare.fit(X.to_numpy(), frame["hired"], sensitive_features=frame["sex"]), tmp_path / "bare.skops")
    code, said = answer(
        ["apply", tmp_path / "bare.skops", tmp_path / "t.parquet", "-o", tmp_path / "o.parquet"], capsys
    )
    assert (code, "columns have no names" in said) == (2, True)


def test_a_classifier_needs_a_file_it_can_go_to_before_anything_is_trained(place, capsys, tmp_path, monkeypatch):
    def trained(*_, **__):
        raise AssertionError("nothing may be trained before the file's name is checked")

    monkeypatch.setattr(eh.FairClassifier, "fit", trained)
    arguments = ["fit", place / "train.parquet", *FIT, "--features", "*"]
    assert "skops" in answer(arguments, capsys)[1]
    code, said = answer([*arguments, "-o", tmp_path / "fair.pkl"], capsys)
    assert (code, ".skops file" in said) == (2, True)
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    code, said = answer([*arguments, "-o", tmp_path / "fair.skops"], capsys)
    assert (code, "pip install 'evenhand[io]'" in said) == (2, True)


def in_terminal(arguments, cwd, env=None):
    """Run the command with a terminal for standard output and error, and return the exit code and what it shows."""
    leader, follower = pty.openpty()
    settings = {**os.environ, **ONE_THREAD, "TERM": "xterm-256color", "COLUMNS": "100", **(env or {})}
    settings.pop("NO_COLOR", None) if not env or "NO_COLOR" not in env else None
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand", *map(str, arguments)],
        cwd=cwd, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env=settings, close_fds=True,
    )  # fmt: skip
    os.close(follower)
    shown = b""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        ready, _, _ = select.select([leader], [], [], 1.0)
        if ready:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
    os.close(leader)
    return process.wait(timeout=900), shown.decode(errors="replace")


COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-9](;[0-9]+)*m")


@pytest.fixture(scope="module")
def scored(place):
    data = eh.datasets.make_zafar(3000, random_state=0)
    repeat = 60
    columns = {"y": data.y, "p": data.p_y, "sex": np.where(np.asarray(data.group) == "0", "F", "M")}
    columns["p_f"] = data.p_joint[:, :, 0].sum(axis=1)
    table = pa.table({name: np.tile(values, repeat) for name, values in columns.items()})
    pq.write_table(table, place / "scored.parquet")
    rule = eh.learn_rule(data.y, {"sex": columns["sex"]}, data.p_y, data.p_group, tolerance=0.05)
    (place / "rule.json").write_text(rule.to_json())
    return ["rule.json", "scored.parquet", "--score", "p", "--group-score", "F=p_f", "-o", "decided.parquet"]


def test_a_terminal_shows_progress_and_colour_and_a_pipe_neither(place, scored):
    code, shown = in_terminal(["apply", *scored], place)
    assert code == 0
    assert "deciding" in shown
    assert "180000/180000" in shown
    piped = evenhand("apply", *scored, cwd=place)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, DECIDED, "")
    audit = ["audit", "scored.parquet", "--label", "y", "--score", "p", "--sensitive", "sex", "--criterion", "dp"]
    code, shown = in_terminal(audit, place)
    assert code == 1
    assert COLOURS.search(shown)
    assert "fail" in shown
    code, shown = in_terminal(audit, place, env={"NO_COLOR": "1"})
    assert code == 1
    assert not COLOURS.search(shown)
    assert "\x1b" not in evenhand(*audit, cwd=place).stdout
    code, shown = in_terminal(["apply", *scored], place, env={"NO_COLOR": "1"})
    assert code == 0
    assert not COLOURS.search(shown)
