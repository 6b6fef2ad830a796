"""What a user holds displays itself: in a notebook, and short in a terminal."""

from __future__ import annotations

import re
import sys
import types
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.display import Description, Table
from evenhand.errors import InputError
from evenhand.progress import progress

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def held():
    data = eh.datasets.make_zafar(900, random_state=0)
    names = np.where(np.asarray(data.group) == "0", NASTY, "M")
    model = LogisticRegression()
    fair = eh.FairClassifier(model, criterion="eo", tolerance=0.1, cv=2, random_state=0)
    fair.fit(data.X, data.y, sensitive_features={"sex": names})
    watch = eh.Watch("dp", 0.1, 0.95)
    watch.update(fair.predict(data.X), names)
    mixture = eh.learn_rule(data.y, names, data.p_y, data.p_joint, criterion="eo", tolerance=0.0, randomize=True)
    receipt = next(receipt for receipt in fair.explain(data.X) if receipt.flipped)
    return {
        "FairClassifier": fair,
        "Rule": fair.rule_,
        "Solution": fair.rule_.solution_,
        "Frontier": fair.frontier(),
        "Diagnostics": fair.diagnostics_,
        "HeldOut": fair.held_out_,
        "Receipt": receipt,
        "Mixture": mixture,
        "Watch": watch,
        "Audit": eh.audit(data.y, fair.predict(data.X), names),
    }


class Page(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.loads, self.open = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]
        if tag in ("div", "table", "p", "tr", "td", "th", "b"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("div", "table", "p", "tr", "td", "th", "b"):
            assert self.open.pop() == tag


OWN = ["Rule", "Solution", "Frontier", "Diagnostics", "HeldOut", "Receipt", "Mixture", "Watch", "Audit"]


@pytest.mark.parametrize("name", OWN)
def test_an_object_displays_itself_without_network_and_without_javascript(held, name):
    html = held[name]._repr_html_()
    page = Page(html)
    assert page.open == []
    assert page.loads == []
    assert "script" not in page.tags
    assert "table" in page.tags
    assert "color:inherit" in html


@pytest.mark.parametrize("name", ["Rule", "Solution", "Frontier", "Diagnostics", "HeldOut", "Receipt", "Mixture"])
def test_a_repr_is_one_short_line(held, name):
    text = repr(held[name])
    assert text.startswith(f"<{name}: ")
    assert "\n" not in text
    assert len(text) < 200


def test_the_table_of_an_audit_has_the_numbers_and_colours_of_its_verdicts(held):
    found = held["Audit"]
    html = found._repr_html_()
    for verdict in found.verdicts:
        gap = verdict.gap
        tone = {"pass": "good", "fail": "bad", "insufficient evidence": "open"}[verdict.outcome]
        row = f'{gap.value:.3f} ({gap.lower:.3f} to {gap.upper:.3f})</td><td class="name">{verdict.tolerance:g}'
        assert row in html
        assert f'<b class="tone {tone}">{verdict.outcome}</b>' in html


def test_a_fitted_classifier_shows_its_diagram_and_one_line_of_result(held):
    fair = held["FairClassifier"]
    html = fair._repr_mimebundle_()["text/html"]
    assert "sk-top-container" in html
    assert f"Utility {fair.rule_.solution_.utility:.4f}" in html
    assert fair._repr_html_().count("Fair rule: EqualizedOdds to within 0.1, on 900 rows.") == 1
    assert "Fair rule" not in eh.FairClassifier(LogisticRegression())._repr_mimebundle_()["text/html"]


def test_text_and_html_of_a_description_say_the_same():
    table = Table(("group", "rate"), (("a & b", "0.1"), (NASTY, "pass")), caption="rates")
    found = Description("A title", ["A sentence.", table])
    assert found.text().splitlines()[:4] == ["A title", "A sentence.", "", "rates"]
    plain = re.sub(r"<style>.*?</style>|<[^>]+>", " ", found.html())
    for word in ("A title", "A sentence.", "a &amp; b", "&lt;script&gt;", "0.1"):
        assert word in plain


@pytest.mark.parametrize("name", ["Frontier", "Audit", "Receipt"])
def test_figures_show_and_are_saved_without_a_network(held, name, tmp_path):
    figure = held[name].plot()
    html = figure._repr_html_()
    assert "<svg" in html
    assert "<script" not in html
    assert Page(html).loads == []
    assert "var(--" not in figure.svg()
    assert "var(--" not in str(figure.to_dict())
    assert figure.save(tmp_path / "f.svg").read_text() == figure.svg()
    with pytest.raises(InputError, match=r"must end with one of .svg"):
        figure.save(tmp_path / "f.bmp")


def test_a_figure_is_saved_as_a_picture_and_as_a_page_that_loads_nothing(held, tmp_path):
    figure = held["Frontier"].plot()
    assert figure.save(tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
    assert "vega" in figure.save(tmp_path / "f.html").read_text()
    assert not re.search(r"<script[^>]+src=", (tmp_path / "f.html").read_text())
    assert "vega-lite" in figure.save(tmp_path / "f.json").read_text()


def test_axis_labels_keep_their_decimals(held):
    curve = held["Frontier"]
    labels = re.findall(r"<text[^>]*>(0\.\d+)</text>", curve.plot().svg())
    assert len(labels) == len(set(labels)) > 4 or len({label for label in labels if len(label) > 4}) > 1


@pytest.mark.parametrize(("make", "kind"), [(pd.Series, pd.DataFrame), (pl.Series, pl.DataFrame), (list, None)])
def test_frames_come_in_the_callers_library(make, kind):
    data = eh.datasets.make_zafar(300, random_state=0)
    groups = make(list(data.group))
    found = eh.audit(data.y, data.p_y, groups, criterion="dp")
    frame = found.to_frame()
    assert kind is None or isinstance(frame, kind)
    rates = dict(zip(frame["group"], frame["value"], strict=True)) if kind else {}
    for group in found.attributes[0].groups if kind else ():
        assert group.group in rates
    assert len(frame) == 2 * 4
    curve = eh.frontier(data.y, groups, data.p_y, data.p_group, tolerances=[0.1, 0.2])
    assert kind is None or isinstance(curve.to_frame(), kind)
    assert isinstance(curve.to_frame("polars"), pl.DataFrame)
    assert curve.to_frame("polars")["utility"].to_list() == curve.utilities.tolist()
    with pytest.raises(InputError, match="library must be one of"):
        curve.to_frame("excel")


def test_progress_shows_in_a_notebook_without_widgets(monkeypatch):
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html)

    display = types.ModuleType("IPython.display")
    display.HTML = str
    display.display = lambda html, display_id: shown.append(html) or Handle()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with progress(2, show=True) as tell:
        tell("p(Y|x) <b>")
        tell("p(A|x)")
    assert [re.search(r'value="(\d)" max="2"', html).group(1) for html in shown] == ["0", "1", "2"]
    assert "&lt;b&gt;" in shown[1]


def test_progress_is_lines_where_nobody_watches(capsys):
    with progress(1, show=True) as tell:
        tell("p(Y|x)")
    assert capsys.readouterr().err == "[1/1] trained p(Y|x)\n"
