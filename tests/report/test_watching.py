"""The page of a watch: the same watch gives the same bytes, and names from data stay text."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.report import write_watch
from evenhand.report.watching import render_watch, summarize_watch, watch_charts

SCRIPT = "<script>window.hacked = true</script>"


@pytest.fixture(scope="module")
def watch():
    rng = np.random.default_rng(0)
    found = eh.Watch(eh.DemographicParity() & eh.SelectionBudget(upper=0.5), 0.05, window=1000)
    for _ in range(12):
        group = rng.choice([SCRIPT, "b"], 400)
        found.update(rng.random(400) < np.where(group == "b", 0.3, 0.6), {"a": group})
    return found


def test_a_page_says_what_the_watch_says_and_shows_a_chart_for_each_verdict(watch, tmp_path):
    path = write_watch(watch, tmp_path / "watch.html", title="Mondays & Tuesdays")
    page = path.read_text(encoding="utf-8")
    assert page == render_watch(watch, title="Mondays & Tuesdays")
    assert page.count("<svg") == len(watch_charts(watch)) == 2
    assert "Mondays &amp; Tuesdays" in page
    assert SCRIPT not in page
    assert "<script" not in page
    said = summarize_watch(watch)
    assert said["outcome"] == "fail"
    assert [verdict["state"] for verdict in said["verdicts"]] == [verdict.state for verdict in watch.verdicts]
    for verdict in said["verdicts"]:
        assert verdict["start"] in page


def test_what_is_no_watch_gets_no_page():
    with pytest.raises(eh.InputError, match="must be a Watch"):
        render_watch({"rows": 3})
    assert "undecided" in render_watch(eh.Watch("dp", 0.05))
