"""``evenhand watch``: a state file that grows day by day, one line, an exit code, and a page."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.cli import main

DAYS = 4


def table(seed, rows=1500):
    data = eh.datasets.make_zafar(rows, random_state=seed)
    labels = np.asarray(data.y).astype(object)
    return pa.table(
        {
            "id": np.arange(rows) + 10_000 * seed,
            "y": pa.array([None if k % 4 == 0 else int(v) for k, v in enumerate(labels)]),
            "sex": np.where(np.asarray(data.group) == "0", "F", "M"),
            "p": data.p_y,
            **{f"p{y}{n}": data.p_joint[:, y, g] for y in (0, 1) for g, n in enumerate("fm")},
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    data = eh.datasets.make_zafar(2000, random_state=9)
    rule = eh.learn_rule(
        data.y,
        {"sex": np.where(np.asarray(data.group) == "0", "F", "M")},
        data.p_y,
        {"sex": data.p_joint},
        criterion="eo",
        tolerance=0.2,
        search=eh.Directions(24),
    )
    (folder / "rule.json").write_text(rule.to_json())
    for day in range(DAYS):
        pq.write_table(table(day), folder / f"day{day}.parquet")
    pa.csv.write_csv(table(0), folder / "day0.csv")
    return folder


COLUMNS = ["--score", "p", *(f"--joint-score={y},{n.upper()}=p{y}{n}" for y in (0, 1) for n in "fm")]


def run(place, monkeypatch, capsys, *arguments):
    monkeypatch.chdir(place)
    code = main(["watch", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_a_watch_goes_on_from_day_to_day(place, monkeypatch, capsys):
    rule = eh.Rule.from_json((place / "rule.json").read_text())
    by_hand = eh.Watch("eo", 0.2, groups={"sex": ("F", "M")}, window=2000)
    for day in range(DAYS):
        options = ["--state", "s.json", "--label", "y", "--id", "id", "--window", 2000, *COLUMNS]
        code, out, err = run(place, monkeypatch, capsys, "rule.json", f"day{day}.parquet", *options)
        rows = pq.read_table(place / f"day{day}.parquet")
        p = {name: rows.column(name).to_numpy() for name in rows.column_names if name.startswith("p")}
        joint = np.stack([np.stack([p[f"p{y}{n}"] for n in "fm"], axis=1) for y in (0, 1)], axis=1)
        decisions = rule.decide(p["p"], {"sex": joint})
        state = by_hand.update(
            decisions,
            {"sex": rows.column("sex").to_pylist()},
            rows.column("y").to_pylist(),
            ids=rows.column("id").to_numpy(),
        )
        assert not err
        assert code == {"holds": 0, "violated": 1, "undecided": 3}[state]
        assert out.startswith(f"{state} since row")
    assert json.loads((place / "s.json").read_text()) == json.loads(by_hand.to_json())
    assert by_hand.waiting == DAYS * 1500 // 4


def test_decisions_may_be_in_the_table_and_a_page_draws_them(place, monkeypatch, capsys):
    rows = table(0)
    unfair = rows.append_column("decision", pa.array((np.asarray(rows.column("sex")) == "F").astype(int)))
    pq.write_table(unfair, place / "unfair.parquet")
    options = ["--state", "d.json", "--decision", "decision", "--criterion", "dp", "--report", "d.html"]
    code, out, _ = run(place, monkeypatch, capsys, "rule.json", "unfair.parquet", *options)
    assert code == 1
    assert out.startswith("violated since row 1,500 of 1,500: demographic_parity on sex 1.000 (")
    page = (place / "d.html").read_text()
    assert page.count("<svg") == 1
    assert "violated" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert "<script" not in page


def test_tables_of_any_format_are_counted_alike(place, monkeypatch, capsys):
    for kind in ("parquet", "csv"):
        options = ["--state", f"{kind}.json", "--label", "y", "--id", "id", *COLUMNS]
        run(place, monkeypatch, capsys, "rule.json", f"day0.{kind}", *options)
    assert (place / "parquet.json").read_text() == (place / "csv.json").read_text()


def test_a_state_of_another_watch_is_not_gone_on_with(place, monkeypatch, capsys):
    start = ["rule.json", "day0.parquet", "--state", "o.json", "--label", "y", *COLUMNS]
    run(place, monkeypatch, capsys, *start)
    before = (place / "o.json").read_text()
    code, _, err = run(place, monkeypatch, capsys, *start, "--tolerance", 0.1)
    assert code == 2
    assert "was created with tolerance 0.2, but now it is 0.1" in err
    (place / "broken.json").write_text(before[:100])
    code, _, err = run(place, monkeypatch, capsys, *start[:3], "broken.json", *start[4:])
    assert code == 2
    assert "not JSON" in err
    assert (place / "o.json").read_text() == before
    assert (place / "broken.json").read_text() == before[:100]


def test_the_state_is_kept_apart_from_what_is_read(place, monkeypatch, capsys):
    code, _, err = run(place, monkeypatch, capsys, "rule.json", "day0.parquet", "--state", "rule.json")
    assert code == 2
    assert "is the rule that is read" in err
    code, _, err = run(
        *(place, monkeypatch, capsys, "rule.json", "day0.parquet", "--state", "x.json"),
        *("--label", "y", "--decision", "none"),
    )
    assert code == 2
    assert "no column 'none'" in err
    assert not (place / "x.json").exists()
