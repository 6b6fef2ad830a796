"""The tables of a standard as a page."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.cli import main
from evenhand.report import write_standard


def decided(rng, rows=400):
    sex = rng.choice(["F", "M <b>"], rows)
    return (rng.random(rows) < np.where(sex == "F", 0.2, 0.6)).astype(int), sex


def test_a_page_has_the_numbers_the_verdict_and_the_citation(tmp_path):
    decisions, sex = decided(np.random.default_rng(0))
    found = eh.audit(None, decisions, {"sex": sex}, standard="four-fifths")
    page = write_standard(found, tmp_path / "page.html", title="A & B").read_text()
    assert "<title>A &amp; B</title>" in page
    assert "29 CFR 1607.4(D)" in page
    assert "not legal advice" in page
    assert "M &lt;b&gt;" in page
    assert "<b>" not in page
    assert 'data-outcome="fail"' in page
    assert f"{found.tables[0].groups[0].to_highest.ratio:.3f}" in page
    assert page == write_standard(found, tmp_path / "again.html", title="A & B").read_text()


def test_a_standard_without_a_limit_has_no_verdict(tmp_path):
    rng = np.random.default_rng(0)
    found = eh.audit(None, rng.normal(50, 10, 300), {"sex": rng.choice(["F", "M"], 300)}, standard="nyc-144")
    page = write_standard(found, tmp_path / "page.html").read_text()
    assert "This standard sets no limit" in page
    assert "above the median of all rows" in page
    with pytest.raises(eh.InputError, match="found must be a result of audit"):
        write_standard("x", tmp_path / "other.html")


def test_the_command_line_writes_the_page(tmp_path, monkeypatch, capsys):
    decisions, sex = decided(np.random.default_rng(0))
    pq.write_table(pa.table({"d": decisions, "sex": sex}), tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    code = main(
        [
            "audit",
            "rows.parquet",
            "--decision",
            "d",
            "--sensitive",
            "sex",
            "--standard",
            "four-fifths",
            "--report",
            "page.html",
        ]
    )
    assert code == 1
    assert "The report is in page.html" in capsys.readouterr().out
    assert "Audit of rows.parquet" in (tmp_path / "page.html").read_text()
