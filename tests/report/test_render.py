from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand import FairClassifier
from evenhand.errors import InputError
from evenhand.paper.datasets.zafar import make_zafar
from evenhand.report import render_html, summarize, write_report
from evenhand.report.charts import short_term
from evenhand.report.render import without_control_characters
from evenhand.rules.frontier import Frontier, FrontierPoint
from evenhand.rules.learn import learn_rule


class Reader(HTMLParser):
    """Collects what a page would load or run, and its slots."""

    def __init__(self):
        super().__init__()
        self.tags, self.loads, self.slots, self.handlers = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action") and not (value or "").startswith(
                ("#", "data:,", "data:text/csv;")
            ):
                self.loads.append(value)
            if name.startswith("on"):
                self.handlers.append(value)
            if name == "data-slot":
                self.slots.append(value)


def read(html):
    reader = Reader()
    reader.feed(html)
    return reader


def test_a_page_is_one_file_that_loads_nothing(summary):
    html = render_html(summary)
    reader = read(html)
    assert reader.loads == []
    assert reader.handlers == []
    assert set(re.findall(r"https?://[^\s\"'<)]+", html)) <= {"http://www.w3.org/2000/svg"}
    assert len(html.encode()) < 2_000_000


def test_the_same_summary_gives_the_same_page_also_after_json(summary):
    assert render_html(summary) == render_html(json.loads(json.dumps(summary)))


def test_every_slot_has_a_text_at_every_step(summary):
    html = render_html(summary)
    steps = json.loads(re.search(r'id="steps">(.*?)</script>', html, re.DOTALL).group(1))
    assert len(steps) == len(summary["steps"])
    for step in steps:
        assert set(read(html).slots) <= step["text"].keys()


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        "a & b",
        'quo"te',
        "o'clock",
        "{{ 7 * 7 }}",
        "-->",
        "\x00\x07bell",
        "\ud800 half",
        "漢字",
        "é" * 300,
        "<!--",
        "]]>",
        "var(--x)",
        "http://evil.example/",
    ],
)
def test_names_from_data_are_text(name):
    generator = np.random.default_rng(0)
    p = generator.random(200)
    y = (generator.random(200) < p).astype(int)
    group = np.array([name, "other"], dtype=object)[np.arange(200) % 2]
    html = render_html(summarize(y, {name: group}, p, title=name, provenance={name: name}))
    html.encode("utf-8")
    reader = read(html)
    assert "img" not in reader.tags
    assert reader.tags.count("script") == 0
    assert reader.loads == []
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", html)


def test_many_steps_and_groups_stay_under_two_megabytes():
    generator = np.random.default_rng(0)
    n, groups = 4000, 12
    p_y = generator.beta(2, 2, n)
    y = (generator.random(n) < p_y).astype(int)
    p_group = generator.dirichlet(np.ones(groups), n)
    group = np.array([generator.choice(groups, p=p) for p in p_group])
    rule = learn_rule(y, group, p_y, p_group, criterion="dp", tolerance=0.3, search="dual")
    points = tuple(FrontierPoint(float(t), 0.5, float(t), 1.0, rule) for t in np.linspace(0.2, 0.5, 25))
    curve = Frontier(points, (), 0.5, 0.5)
    assert len(render_html(summarize(y, group, p_y, p_group, curve)).encode()) < 2_000_000


def test_a_report_is_written_whole(summary, tmp_path):
    path = write_report(summary, tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == render_html(summary)
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(InputError, match="summary must be a result"):
        write_report({"steps": []}, tmp_path / "other.html")
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_short_terms_keep_names_with_brackets():
    assert short_term("rate(sex=F (new), Y=1) - rate(sex=M, Y=1)") == "sex=F (new), Y=1 − sex=M, Y=1"


@pytest.mark.parametrize("rows", [59, 120])
def test_a_report_refuses_labels_of_another_number_than_its_rows(rows, tmp_path):
    data = make_zafar(60, random_state=0)
    fair = FairClassifier(LogisticRegression(), tolerance=0.5, cv=2, random_state=0)
    fair.fit(data.X, data.y, sensitive_features=data.group)
    y = np.resize(data.y, rows)
    with pytest.raises(InputError, match=f"y has {rows} rows, but p_y has 60"):
        fair.report(data.X, y, sensitive_features=data.group, path=tmp_path / "report.html")


def test_a_page_takes_names_that_are_tuples():
    assert without_control_characters({("a", "b"): ("c\x07",)}) == {"('a', 'b')": ["c\N{REPLACEMENT CHARACTER}"]}
