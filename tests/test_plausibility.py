"""What is most likely a mistake is refused or warned of, and what is not leads to no warning."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from evenhand.cli import main
from evenhand.errors import EvenhandWarning, InputError
from evenhand.report import rule_card, summarize
from evenhand.statistics.calibration import reliability


def draw(n=1500, n_groups=2, seed=0, sharpness=1.0):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(2 * n_groups, sharpness), n)
    cell = (rng.random((n, 1)) > joint.cumsum(axis=1)[:, :-1]).sum(axis=1)
    groups = np.array([f"g{k}" for k in range(n_groups)])[cell % n_groups]
    joint = joint.reshape(n, 2, n_groups)
    return cell // n_groups, groups, joint[:, 1].sum(axis=1), joint


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_swapped_columns_of_groups_are_warned_of(n_groups, joint):
    y, groups, p_y, both = draw(n_groups=n_groups)
    p_group = both if joint else both.sum(axis=1)
    options = {"criterion": "eop" if joint else "dp", "tolerance": 0.3, "search": "directions"}
    right = eh.learn_rule(y, {"sex": groups}, p_y, {"sex": p_group}, **options)
    with pytest.warns(EvenhandWarning, match=r"the group 'g.' of 'sex'.*must follow the groups \['g0', 'g1'"):
        eh.learn_rule(y, {"sex": groups}, p_y, {"sex": p_group[..., ::-1]}, **options)
    with pytest.warns(EvenhandWarning, match="seem to be in another order"):
        summarize(y, {"sex": groups}, p_y, {"sex": p_group[..., ::-1]}, right)
    with pytest.warns(EvenhandWarning, match="seem to be in another order"):
        eh.frontier(
            y, groups, p_y, p_group[..., ::-1], criterion=options["criterion"], tolerances=[0.3], search="directions"
        )


@pytest.mark.parametrize("seed", range(20))
def test_probabilities_without_information_are_not_warned_of(seed):
    rng = np.random.default_rng(seed)
    y, groups, p_y, _ = draw(400, n_groups=3, seed=seed)
    guesses = {
        "noise": rng.dirichlet(np.ones(3), 400),
        "constant": np.full((400, 3), 1 / 3),
        "leave one out": _leave_one_out(groups),
    }
    for p_group in guesses.values():
        eh.learn_rule(y, groups, p_y, p_group, tolerance=0.5, search="directions")


def _leave_one_out(groups):
    """Return each row's group shares among the other rows: always lower for the row's own group."""
    own = groups[:, None] == np.unique(groups)
    return (own.sum(axis=0) - own) / (len(groups) - 1)


def test_a_known_group_is_no_mistake():
    y, groups, p_y, _ = draw()
    eh.learn_rule(y, groups, p_y, np.column_stack([groups == "g0", groups == "g1"]).astype(float), tolerance=0.1)


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.bool_])
def test_decisions_for_probabilities_are_warned_of(kind):
    y, groups, p_y, both = draw()
    decisions = (p_y > 0.5).astype(kind)
    with pytest.warns(EvenhandWarning, match=r"p_y has only the values 0 and 1 in 1,500 rows.*predict_proba"):
        eh.learn_rule(y, groups, decisions, both.sum(axis=1), tolerance=0.2)
    rule = eh.learn_rule(y, groups, p_y, both.sum(axis=1), tolerance=0.2)
    with pytest.warns(EvenhandWarning, match="only the values 0 and 1"):
        summary = summarize(y, groups, decisions, both.sum(axis=1), rule)
    changed = rule.decide(decisions.astype(float), both.sum(axis=1)) != decisions.astype(int)
    assert summary["steps"][0]["flipped"] == changed.sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eh.learn_rule(y[:25], groups[:25], decisions[:25], both.sum(axis=1)[:25], tolerance=1.0)


@pytest.mark.filterwarnings("default::evenhand.errors.EvenhandWarning")
def test_the_command_line_shows_the_warnings(tmp_path, capsys):
    y, groups, p_y, both = draw()
    f = both.sum(axis=1)[:, 1]
    pq.write_table(pa.table({"y": y, "sex": groups, "p": (p_y > 0.5).astype(int), "f": f}), tmp_path / "t.parquet")
    options = ["--label", "y", "--score", "p", "--sensitive", "sex", "--group-score", "g0=f", "--tolerance", "0.3"]
    assert main(["fit", str(tmp_path / "t.parquet"), *options, "-o", str(tmp_path / "rule.json")]) == 0
    shown = capsys.readouterr().err
    assert "evenhand: note: p_y has only the values 0 and 1" in shown
    assert "evenhand: note: The probabilities of the group 'g0' of 'sex' are lower among its own rows" in shown


def test_a_tree_of_few_leaves_has_probabilities():
    y, groups, p_y, both = draw()
    X = np.column_stack([p_y, both.reshape(-1, 4)])
    fair = eh.FairClassifier(
        DecisionTreeClassifier(max_depth=4, random_state=0), criterion="dp", tolerance=0.2, cv=2, random_state=0
    )
    fair.fit(X, y, sensitive_features=groups)


def shuffled(values, seed=0):
    """Return a Series or frame with its rows, and so its index, in another order."""
    return values.sample(frac=1.0, random_state=seed)


def calls(y, groups, p_y, p_group, weight):
    """Return every public call that takes rows in several arguments."""
    decisions = np.asarray(p_y) > 0.5
    rule = eh.Rule.from_criterion("dp", groups={"group": ("g0", "g1")}, priors=[0.5, 0.5], z=[0.1])
    X = pd.DataFrame({"p": np.asarray(p_y), "g": 0.0 if p_group is None else np.asarray(p_group)[:, 0]})
    X.index = getattr(p_y, "index", X.index)
    fair = eh.FairClassifier(LogisticRegression(), criterion="dp", tolerance=0.9, cv=2, random_state=0)
    return {
        "learn_rule": lambda: eh.learn_rule(y, groups, p_y, p_group, tolerance=0.9, sample_weight=weight),
        "frontier": lambda: eh.frontier(y, groups, p_y, p_group, tolerances=[0.9], sample_weight=weight),
        "audit": lambda: eh.audit(y, decisions, groups, sample_weight=weight),
        "group_rates": lambda: eh.metrics.group_rates(y, decisions, sensitive_features=groups, sample_weight=weight),
        "equalized_odds_difference": lambda: eh.metrics.equalized_odds_difference(
            y, decisions, sensitive_features=groups, sample_weight=weight
        ),
        "summarize": lambda: summarize(y, groups, p_y, p_group, rule, sample_weight=weight),
        "rule_card": lambda: rule_card(rule, y, groups, p_y, p_group, sample_weight=weight),
        "fit": lambda: fair.fit(X, y, sensitive_features=groups, sample_weight=weight),
    }


NAMES = list(calls(*[None] * 2, np.zeros(1), *[None] * 2))


@pytest.mark.parametrize("call", NAMES)
def test_pandas_objects_of_other_indexes_are_refused(call):
    y, groups, p_y, both = draw(300)
    index = np.random.default_rng(0).permutation(1000)[:300]
    given = {
        "y": pd.Series(y, index=index),
        "groups": pd.Series(groups, index=index, name="group"),
        "p_y": pd.Series(p_y, index=index),
        "p_group": pd.DataFrame(both.sum(axis=1), index=index, columns=["g0", "g1"]),
        "weight": pd.Series(np.ones(300), index=index),
    }
    calls(**given)[call]()
    for name in ("y", "groups"):
        for other in (shuffled(given[name]), given[name].reset_index(drop=True)):
            with pytest.raises(InputError, match=r"different pandas indexes.*reset_index\(drop=True\).*to_numpy"):
                calls(**{**given, name: other})[call]()
        for other in (given[name].to_numpy(), given[name].to_list(), pl.Series("group", given[name].to_numpy())):
            calls(**{**given, name: other})[call]()
    with pytest.raises(InputError, match="sample_weight"):
        calls(**{**given, "weight": given["weight"].reset_index(drop=True)})[call]()
    if call != "group_rates":
        frame = given["groups"].to_frame()
        with pytest.raises(InputError, match="different pandas indexes"):
            calls(**{**given, "groups": shuffled(frame)})[call]()
        with pytest.raises(InputError, match=r"sensitive_features\['group'\]"):
            calls(**{**given, "groups": {"group": shuffled(given["groups"])}})[call]()


def test_indexes_of_equal_values_are_the_same():
    y, groups, p_y, both = draw(300)
    spelt = [pd.RangeIndex(300), pd.Index(np.arange(300)), pd.Index(np.arange(300, dtype=np.int32))]
    given = pd.Series(y, index=spelt[0]), pd.Series(groups, index=spelt[1]), pd.Series(p_y, index=spelt[2])
    eh.learn_rule(*given, both.sum(axis=1), tolerance=0.5)


def test_the_attribute_at_predict_is_checked_too():
    y, groups, p_y, both = draw(300)
    X = pd.DataFrame(np.column_stack([p_y, both[:, 0]]), columns=list("abc"), index=np.arange(300)[::-1])
    A = pd.Series(groups, index=X.index, name="sex")
    fair = eh.FairClassifier(
        LogisticRegression(), criterion="dp", tolerance=0.3, cv=2, sensitive_at_predict=True, random_state=0
    )
    fair.fit(X, y, sensitive_features=A)
    fair.predict(X, sensitive_features=A)
    for method in ("predict", "decision_function", "bias_scores", "explain"):
        with pytest.raises(InputError, match="different pandas indexes"):
            getattr(fair, method)(X, sensitive_features=A[::-1])
    with pytest.raises(InputError, match="different pandas indexes"):
        fair.score(X, pd.Series(y), sensitive_features=A)


def test_grid_search_slices_all_alike():
    import sklearn

    y, groups, p_y, both = draw(400)
    index = np.random.default_rng(1).permutation(400)
    X = pd.DataFrame(np.column_stack([p_y, both[:, 0]]), index=index)
    fair = eh.FairClassifier(LogisticRegression(), criterion="dp", cv=2, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(fair, {"tolerance": [0.2, 0.4]}, cv=2, error_score="raise")
        search.fit(X, pd.Series(y, index=index), sensitive_features=pd.Series(groups, index=index))
    assert search.best_params_["tolerance"] in (0.2, 0.4)


def test_calibration_is_weighted():
    """A weight of k is k copies in the bins, the shares and the error; only the intervals know fewer rows."""
    rng = np.random.default_rng(0)
    p = rng.random(400).round(2)
    happened = rng.random(400) < p**2
    weight = rng.integers(0, 4, 400).astype(float)
    found = reliability(p, happened, weight)
    copies = np.repeat(np.arange(400), weight.astype(int))
    expected = reliability(p[copies], happened[copies])
    assert found["error"] == pytest.approx(expected["error"])
    assert found["error"] != pytest.approx(reliability(p, happened)["error"], abs=1e-4)
    for name in ("predicted", "observed"):
        assert [b[name] for b in found["bins"]] == pytest.approx([b[name] for b in expected["bins"]])
    narrower = [b["upper"] - b["lower"] for b in expected["bins"]]
    assert all(b["upper"] - b["lower"] > width for b, width in zip(found["bins"], narrower, strict=True))
    alike = reliability(p, happened, np.full(400, 7.0))["bins"], reliability(p, happened)["bins"]
    assert all(one == pytest.approx(other) for one, other in zip(*alike, strict=True))
    assert reliability(p, happened, np.zeros(400))["bins"] == []
    assert reliability(p[:0], happened[:0])["error"] is None


def test_reports_weigh_calibration_and_bias_scores():
    y, groups, p_y, both = draw(600)
    weight = np.random.default_rng(0).integers(1, 5, 600)
    copies = np.repeat(np.arange(600), weight)
    rule = eh.learn_rule(y, groups, p_y, both.sum(axis=1), tolerance=0.1)
    found = summarize(y, groups, p_y, both, rule, sample_weight=weight)
    expected = summarize(y[copies], groups[copies], p_y[copies], both[copies], rule)
    for one, other in zip(found["calibration"], expected["calibration"], strict=True):
        assert one["error"] == pytest.approx(other["error"])
        assert [b["observed"] for b in one["bins"]] == pytest.approx([b["observed"] for b in other["bins"]])
    plain = summarize(y, groups, p_y, both, rule)
    assert found["bias"]["edges"] == pytest.approx(plain["bias"]["edges"])
    edges = np.array(plain["bias"]["edges"])
    inner = np.clip(rule.bias_scores(p_y, both.sum(axis=1))[:, 0], edges[0], edges[-1])
    for group, shares in zip(("g0", "g1"), found["bias"]["shares"], strict=True):
        mine = groups == group
        counted = np.histogram(inner[mine], edges, weights=weight[mine])[0]
        assert shares == pytest.approx((counted / weight[mine].sum()).tolist())
