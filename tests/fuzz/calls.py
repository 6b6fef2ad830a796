"""Every public callable with a call that is right, so that each of its parameters can be given something wrong.

:func:`inventory` lists what is public, from the packages themselves. Each name has an entry in :data:`CALLS`, or a
reason in :data:`EXEMPT` why there is nothing to call it with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import secrets
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hostile import VALUES, Value, damages
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.errors import EvenhandError, EvenhandWarning
from evenhand.rows import read_rows
from evenhand.rules.setting import Options, Setting
from evenhand.search import Directions

PACKAGES = (
    "evenhand", "evenhand.metrics", "evenhand.search", "evenhand.datasets", "evenhand.io", "evenhand.report",
    "evenhand.engines",
)  # fmt: skip
MODULES = {
    "evenhand.engines.arrow": ("learn_rule", "aggregate", "apply"),
    "evenhand.engines.duckdb": ("learn_rule", "aggregate", "apply"),
    "evenhand.engines.spark": ("learn_rule", "aggregate", "apply"),
    "evenhand.export.mlflow": ("save_model", "log_model", "load_classifier"),
    "evenhand.export.onnx": ("rule_to_onnx", "classifier_to_onnx"),
    "evenhand.statistics.intervals": (
        "effective_counts", "newcombe_interval", "rows_needed", "wilson_interval",
    ),
    "evenhand.statistics.sequences": ("rate_sequence", "restart_share"),
    "evenhand.statistics.bounds": (
        "clopper_pearson_interval", "clopper_pearson_lower", "clopper_pearson_upper", "exact_upper_bound",
        "exact_within",
    ),
}  # fmt: skip
EXEMPT = {
    "evenhand.Event.text": "takes words of the library's own",
    "evenhand.Rule.noting": "takes notes of the library's own",
    "evenhand.Mixture.noting": "the same",
    "evenhand.Criterion": "the base of the criteria; its subclasses are called",
    "evenhand.Criterion.constraints": "the same",
    "evenhand.Criterion.levels": "the same",
    "evenhand.Criterion.reported": "the same",
    **{
        f"evenhand.{name}.at": "takes levels that a search makes"
        for name in (
            "AccuracyParity",
            "Criterion",
            "DemographicParity",
            "EqualOpportunity",
            "EqualizedOdds",
            "LinearConstraint",
            "MaximumRate",
            "MinimaxRate",
            "MinimumRate",
            "PredictiveEquality",
            "PredictiveParity",
            "SelectionBudget",
            "SelectionRatio",
        )
    },
    "evenhand.MinimaxRate.constraints": "has none before a fit",
    "evenhand.Criterion.stratified": "the same",
    "evenhand.Dual": "it has no parameters",
    "evenhand.Smoothed.closest": "takes a Problem",
    "evenhand.FairClassifier.fit": "called with the constructor, whose parameters it checks",
    "evenhand.Alternatives": "made by alternatives",
    "evenhand.Audit": "made by audit",
    "evenhand.Frontier": "made by frontier; its methods are called",
    "evenhand.Frontier.with_rule": "takes a rule that the library learnt",
    "evenhand.FairClassifier.groups_of": "hands X to the reader that fit uses",
    "evenhand.report.Report": "made by FairClassifier.report; its methods are called",
    "evenhand.EvenhandError": "an exception",
    "evenhand.EvenhandWarning": "a warning",
    "evenhand.InfeasibleError": "an exception",
    "evenhand.InputError": "an exception",
    "evenhand.RuleFormatError": "an exception",
    "evenhand.metrics.GroupRates": "made by group_rates; its methods are called",
    "evenhand.metrics.GroupTable": "made by group_table; its methods are called",
    "evenhand.search.NoRule": "made by the searches",
    "evenhand.search.Solution": "made by the searches",
    "evenhand.search.Search": "a protocol",
    "evenhand.search.Search.solve": "a protocol",
    **{
        f"evenhand.search.Problem{method}": "what learn_rule makes of what it has checked"
        for method in (
            "",
            ".counted",
            ".decide",
            ".evaluate",
            ".excess",
            ".level",
            ".slope",
            ".strictly_inside",
            ".take",
        )
    },
    "evenhand.datasets.DataError": "an exception",
    "evenhand.datasets.Dataset": "made by the loaders; its methods are called",
    "evenhand.datasets.ZafarDataset": "made by make_zafar; its methods are called",
    "evenhand.datasets.Dataset.as_frame": "called on a ZafarDataset",
    "evenhand.datasets.Dataset.splits": "called on a ZafarDataset",
    "evenhand.datasets.Dataset.take": "called on a ZafarDataset",
    "evenhand.datasets.load_adult": "it has no parameters",
    "evenhand.datasets.fetch_compas": "it has no parameters",
    "evenhand.datasets.CelebA": "made by load_celeba; its methods are called",
    "evenhand.datasets.Split": "made by the data sets",
    "evenhand.engines.Aggregate": "made by aggregate; its methods are called",
    "evenhand.engines.Aggregate.crossing": "given the crossed attributes of a criterion that was checked",
    "evenhand.engines.ErrorBound": "made by Aggregate.error_bound",
    "evenhand.engines.NearAggregate": "made by aggregate with near=; its methods are called",
    "evenhand.engines.spark.learn_rule": "reads names and options with the code of the other engines, and needs Java",
    "evenhand.engines.spark.aggregate": "the same",
    "evenhand.engines.spark.apply": "the same",
    "evenhand.export.mlflow.log_model": "checks what save_model checks, and writes to a tracking server",
}


@dataclass(frozen=True)
class Call:
    """One public callable, and arguments with which it works.

    ``foreign`` names the parameters that are handed to a model of the caller's, whose exceptions are its own;
    ``left`` those that are not given anything wrong; ``also`` those that the signature does not name. What is
    ``slow`` is not given everything in the tests, only in ``make fuzz``.
    """

    run: Callable[..., Any]
    right: Callable[[], dict[str, Any]] = dict
    foreign: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    slow: bool = False

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that can be given by name."""
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        found = [name for name, p in inspect.signature(self.run).parameters.items() if p.kind not in kinds]
        return tuple(dict.fromkeys(n for n in (*found, *self.right(), *self.also) if n not in self.left))


def inventory() -> dict[str, Any]:
    """Return every public callable by its full name: functions, classes, and the public methods of classes."""
    found: dict[str, Any] = {}
    named = {package: tuple(importlib.import_module(package).__all__) for package in PACKAGES} | MODULES
    for module, names in named.items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            if callable(value):
                found.setdefault(_name_of(value) or f"{module}.{name}", (f"{module}.{name}", value))
    public: dict[str, Any] = {}
    for name, value in found.values():
        public[name] = value
        if inspect.isclass(value) and not issubclass(value, BaseException):
            public |= {f"{name}.{method}": getattr(value, method) for method in _methods(value)}
    return public


def _name_of(value: Any) -> str:
    """Return one name for what is public under two, such as evenhand.search.Directions."""
    return f"{value.__module__}.{value.__qualname__}" if inspect.isclass(value) else ""


def _methods(cls: type) -> Iterator[str]:
    """Yield the public methods that evenhand itself defines and that take a parameter."""
    for name, method in inspect.getmembers(cls, callable):
        home = getattr(method, "__module__", "") or ""
        if name.startswith("_") or not home.startswith("evenhand") or inspect.isclass(method):
            continue
        if any(parameter != "self" for parameter in inspect.signature(method).parameters):
            yield name


@functools.cache
def _rows() -> dict[str, np.ndarray]:
    data = eh.datasets.make_zafar(60, random_state=0)
    X, y = np.asarray(data.X), np.asarray(data.y)
    return {"X": X, "y": y, "group": np.asarray(data.group), "p_y": data.p_y, "joint": data.p_joint}


def _learning() -> dict[str, Any]:
    rows = _rows()
    return {
        "y": rows["y"], "sensitive_features": rows["group"], "p_y": rows["p_y"], "p_group": rows["joint"],
        "search": Directions(8), "tolerance": 0.2,
    }  # fmt: skip


def _strata() -> list[str]:
    return [("x", "y")[i % 2] for i in range(len(_rows()["y"]))]


@functools.cache
def _stratified_rule() -> eh.Rule:
    criterion = eh.DemographicParity(within="job", thin=2)
    return eh.learn_rule(**{**_learning(), "criterion": criterion, "tolerance": 1.0, "strata": _strata()})


@functools.cache
def _stratified_mixture() -> eh.Mixture:
    given = {**_learning(), "criterion": eh.DemographicParity(within="job", thin=2), "search": "certified"}
    return eh.learn_rule(**given, strata=_strata(), randomize=True)


def _frontier() -> dict[str, Any]:
    right = {**_learning(), "tolerances": [0.1, 1.0]}
    right |= {"criterion": eh.DemographicParity(within="job"), "strata": {"job": _strata()}}
    del right["tolerance"]
    return right


def _standard() -> Any:
    rows = _rows()
    return eh.audit(None, (rows["p_y"] > 0.5).astype(int), rows["group"], standard="four-fifths")


def _alternatives() -> dict[str, Any]:
    right = {**_learning(), "margin": 0.05, "decisions": (_rows()["p_y"] > 0.4).astype(int), "held_out": 0.5}
    del right["tolerance"]
    return right


@functools.cache
def _rule() -> eh.Rule:
    return eh.learn_rule(**{**_learning(), "criterion": "eo"})


def _hand_made() -> dict[str, Any]:
    return {"criterion": "dp", "groups": {"A": ("a", "b")}, "priors": np.array([0.5, 0.5]), "z": np.array([0.1])}


def _deciding() -> dict[str, Any]:
    return {"p_y": _rows()["p_y"], "p_group": _rows()["joint"]}


def _measuring() -> dict[str, Any]:
    rows = _rows()
    return {"y_true": rows["y"], "y_pred": (rows["p_y"] > 0.5).astype(int), "sensitive_features": rows["group"]}


def _rates() -> dict[str, Any]:
    right = _measuring()
    del right["sensitive_features"]
    return right


def _auditing() -> dict[str, Any]:
    rows = _rows()
    return {"y": rows["y"], "decisions_or_scores": rows["p_y"], "sensitive_features": rows["group"]}


def _watch(**options: Any) -> eh.Watch:
    watch = eh.Watch(**{"criterion": "eo", "tolerance": 0.05, **options})
    watch.update([0, 1, 1, 0], ["0", "1", "0", "1"], [1, 0, None, None], ids=[1, 2, 3, 4])
    return watch


def _watching() -> dict[str, Any]:
    rows = _rows()
    decisions = (rows["p_y"] > 0.5).astype(int)
    return {"decisions": decisions, "groups": rows["group"], "y": rows["y"], "ids": np.arange(100, 160)}


# Not n_jobs: what is right for it starts processes.
OPTIONS = (
    "auxiliary", "criterion", "tolerance", "search", "cv", "ensemble", "recalibrate", "confidence", "costs",
    "objective", "randomize", "sensitive_at_predict", "sensitive_columns", "drop_sensitive", "pos_label",
    "random_state", "verbose",
)  # fmt: skip


def _fit(estimator: Any, X: Any, y: Any, sensitive_features: Any = None, sample_weight: Any = None, **options: Any):
    fair = eh.FairClassifier(estimator, **options)
    if "sensitive_columns" in options and options["sensitive_columns"] is not None:
        sensitive_features = None
    return fair.fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight).predict(X[:3])


def _fitting() -> dict[str, Any]:
    rows = _rows()
    return {
        "estimator": LogisticRegression(), "X": rows["X"], "y": rows["y"], "sensitive_features": rows["group"],
        "criterion": "dp", "tolerance": 0.5, "cv": 2, "search": Directions(8), "random_state": 0,
    }  # fmt: skip


@functools.cache
def _fair() -> eh.FairClassifier:
    right = _fitting()
    X, y, group = right.pop("X"), right.pop("y"), right.pop("sensitive_features")
    return eh.FairClassifier(**right).fit(X, y, sensitive_features=group)


@functools.cache
def _knowing() -> eh.FairClassifier:
    """Return a classifier whose decisions use the attribute itself."""
    right = _fitting()
    X, y, group = right.pop("X"), right.pop("y"), right.pop("sensitive_features")
    return eh.FairClassifier(**right, sensitive_at_predict=True).fit(X, y, sensitive_features=group)


def _of_fair(method: str) -> Callable[..., Any]:
    return getattr(_knowing(), method)


def _predicting() -> dict[str, Any]:
    return {"X": _rows()["X"], "sensitive_features": _rows()["group"]}


def _table() -> Any:
    import pyarrow as pa

    rows = _rows()
    female = rows["joint"][:, :, 0].sum(axis=1)
    return pa.table({"p": rows["p_y"], "f": female, "m": 1.0 - female, "y": rows["y"], "sex": rows["group"]})


def _relation() -> Any:
    import duckdb

    table = _table()
    return duckdb.connect().from_arrow(table)


def _names() -> dict[str, Any]:
    return {"y": "y", "sensitive_features": "sex", "p_y": "p", "p_group": {"0": "f", "1": "m"}}


ENGINE_OPTIONS = ("evidence", "costs", "priors", "missing", "random_state", "level", "max_cells", "pos_label")


def _engine(data: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {"data": data(), **_names(), "tolerance": 0.2, "search": Directions(8)}


def _counting(data: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {"data": data(), **_names()}


@functools.cache
def _aggregate() -> Any:
    from evenhand.engines import arrow

    return arrow.aggregate(_table(), **_names())


@functools.cache
def _counted_rule() -> eh.Rule:
    return _aggregate().learn_rule("dp", 0.2, search=Directions(8))


def _applying(data: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {"rule": _counted_rule(), "data": data(), "p_y": "p", "p_group": {"0": "f", "1": "m"}}


def _apply_arrow(**given: Any) -> Any:
    from evenhand.engines import arrow

    return arrow.apply(**given).read_all()


def _apply_duckdb(**given: Any) -> Any:
    from evenhand.engines import duckdb

    return duckdb.apply(**given).fetchall()


def _summarizing() -> dict[str, Any]:
    return {**_deciding(), "y": _rows()["y"], "sensitive_features": _rows()["group"], "rules": _rule()}


@functools.cache
def _summary() -> dict[str, Any]:
    return _late("evenhand.report", "summarize")(**_summarizing())


def _counts() -> dict[str, Any]:
    return {"successes": np.array([30, 66]), "trials": np.array([100, 200])}


@functools.cache
def _near() -> Any:
    from evenhand.engines import arrow

    return arrow.aggregate(_table(), **_names(), near=_counted_rule())


def _two_counts() -> dict[str, Any]:
    return {"successes_a": 40, "trials_a": 100, "successes_b": 50, "trials_b": 100}


@functools.cache
def _saved(kind: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="evenhand-fuzz-"))
    path = folder / kind
    if kind == "fair.skops":
        eh.io.save(_fair(), path)
    elif kind == "watch.json":
        _watch().save(path)
    elif kind == "model":
        _late("evenhand.export.mlflow", "save_model")(_fair(), path, _rows()["X"])
    else:
        (_near if kind == "near.parquet" else _aggregate)().save(path)
    return path


@functools.cache
def _celeba_folder() -> Path:
    from PIL import Image

    folder = Path(tempfile.mkdtemp(prefix="evenhand-fuzz-"))
    (folder / "list_attr_celeba.csv").write_text("image_id,Attractive,Male\n000001.jpg,1,-1\n000002.jpg,-1,1\n")
    (folder / "list_eval_partition.csv").write_text("image_id,partition\n000001.jpg,0\n000002.jpg,2\n")
    (folder / "img_align_celeba").mkdir()
    for name in ("000001.jpg", "000002.jpg"):
        Image.new("RGB", (8, 8)).save(folder / "img_align_celeba" / name)
    return folder


@functools.cache
def _celeba() -> Any:
    return eh.datasets.load_celeba(_celeba_folder())


@functools.cache
def _zafar() -> Any:
    return eh.datasets.make_zafar(60, random_state=0)


def _late(module: str, name: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(module), name)


def _metric_calls() -> dict[str, Call]:
    found = {}
    for name in eh.metrics.__all__:
        function = getattr(eh.metrics, name)
        if inspect.isfunction(function):
            grouped = "sensitive_features" in inspect.signature(function).parameters
            found[f"evenhand.metrics.{name}"] = Call(function, _measuring if grouped else _rates)
    return found


def _tabling() -> dict[str, Any]:
    rows = _rows()
    right = {"metrics": {"selection": _share}, "y": rows["y"], "decisions": (rows["p_y"] > 0.5).astype(int)}
    return {**right, "sensitive_features": rows["group"], "resamples": 3}


def _share(y: Any, decisions: Any, sample_weight: Any = None) -> float:
    return float(np.mean(decisions == 1))


def _table_calls() -> dict[str, Call]:
    table = eh.metrics.group_table(**_tabling())
    return {
        "evenhand.metrics.group_table": Call(eh.metrics.group_table, _tabling),
        "evenhand.metrics.GroupTable.difference": Call(table.difference),
        "evenhand.metrics.GroupTable.ratio": Call(table.ratio),
    }


def _criterion_calls() -> dict[str, Call]:
    groups = {"groups": {"sex": ("F", "M")}}
    right: dict[str, dict[str, Any]] = {
        "DemographicParity": {}, "EqualOpportunity": {}, "EqualizedOdds": {}, "PredictiveEquality": {},
        "SelectionRatio": {"ratio": 0.8}, "MinimumRate": {"rate": "tpr", "floor": 0.5}, "SelectionBudget": {},
        "AccuracyParity": {}, "MaximumRate": {"rate": "precision", "ceiling": 0.5},
        "PredictiveParity": {}, "MinimaxRate": {"rate": "fnr"},
        "LinearConstraint": {"terms": {eh.Event("sex", "F"): 1.0}, "upper": 0.5},
    }  # fmt: skip
    found = {}
    for name, options in right.items():
        cls = getattr(eh, name)
        found[f"evenhand.{name}"] = Call(cls, lambda options=options: dict(options))
        for method in ("constraints", "levels", "reported"):
            if (name, method) != ("MinimaxRate", "constraints"):
                found[f"evenhand.{name}.{method}"] = Call(getattr(cls(**options), method), lambda: dict(groups))
        within = {"within": "job"} if "within" in {field.name for field in dataclasses.fields(cls)} else {}
        found[f"evenhand.{name}.stratified"] = Call(cls(**options, **within).stratified, lambda: dict(groups))
    return found


@functools.cache
def calls() -> Mapping[str, Call]:
    """Return the call of every public name."""
    rule, fair, cells = _rule(), _fair(), _aggregate()
    given = (_learning()[name] for name in ("y", "sensitive_features", "p_y", "p_group"))
    options = Options(criterion=eh.DemographicParity())
    setting = Setting.of(read_rows(*given, criterion=options.criterion), options)
    solved = {"problem": setting.problem([0.3])}
    intervals = functools.partial(_late, "evenhand.statistics.intervals")
    bounds = functools.partial(_late, "evenhand.statistics.bounds")
    mixture = eh.Mixture((rule,), (1.0,))
    linear = {"coefficients": [1.0, -1.0], "successes": [30, 66], "trials": [100, 200]}
    found: dict[str, Call] = {
        "evenhand.learn_rule": Call(eh.learn_rule, _learning),
        "evenhand.frontier": Call(eh.frontier, _frontier),
        "evenhand.alternatives": Call(eh.alternatives, _alternatives, slow=True),
        "evenhand.audit": Call(eh.audit, _auditing),
        "evenhand.Watch": Call(
            _watch,
            lambda: {"criterion": "eo", "tolerance": 0.05},
            also=("confidence", "window", "groups", "pos_label", "missing"),
        ),
        "evenhand.Watch.update": Call(lambda **given: _watch().update(**given), _watching),
        "evenhand.Watch.add_labels": Call(
            lambda ids, y: _watch().add_labels(ids, y), lambda: {"ids": [3, 4], "y": [1, 0]}
        ),
        "evenhand.Watch.from_json": Call(eh.Watch.from_json, lambda: {"text": _watch().to_json()}),
        "evenhand.Watch.save": Call(_watch().save, lambda: {"path": "watch.json"}),
        "evenhand.Watch.load": Call(eh.Watch.load, lambda: {"path": _saved("watch.json")}),
        "evenhand.Audit.to_frame": Call(eh.audit(**_auditing()).to_frame, lambda: {"library": "pandas"}),
        "evenhand.Frontier.to_frame": Call(eh.frontier(**_frontier()).to_frame, lambda: {"library": "pandas"}),
        "evenhand.FairClassifier.report": Call(
            fair.report,
            lambda: {**_predicting(), "y": _rows()["y"], "path": "report.html", "title": "A title", "confidence": 0.9},
            foreign=("X",),
            also=("sample_weight", "held_out", "provenance"),
            slow=True,
        ),
        "evenhand.report.Report.write": Call(
            lambda path: fair.report(**_predicting(), y=_rows()["y"]).write(path),
            lambda: {"path": "report.html"},
            slow=True,
        ),
        "evenhand.Frontier.rule_at": Call(eh.frontier(**_frontier()).rule_at, lambda: {"tolerance": 0.2}),
        "evenhand.Intersection": Call(
            lambda first, second: eh.Intersection(first, second), lambda: {"first": "a", "second": "b"}
        ),
        "evenhand.Certified": Call(eh.Certified, lambda: {"gap": 0.1, "max_nodes": 8, "max_seconds": 1.0, "n_jobs": 1}),
        "evenhand.Smoothed": Call(eh.Smoothed, lambda: {"max_work": 1e6}),
        "evenhand.Directions": Call(eh.Directions, lambda: {"n": 8}),
        "evenhand.Lines": Call(eh.Lines, lambda: {"m": 8}),
        "evenhand.Rule": Call(
            eh.Rule,
            lambda: {
                "groups": dict(rule.groups), "events": rule.events, "priors": rule.priors, "terms": rule.terms,
            },
        ),
        "evenhand.Rule.from_criterion": Call(eh.Rule.from_criterion, _hand_made),
        "evenhand.Rule.from_json": Call(eh.Rule.from_json, lambda: {"text": rule.to_json()}),
        "evenhand.Event": Call(eh.Event, lambda: {"attribute": "sex", "group": "F"}),
        "evenhand.Mixture": Call(eh.Mixture, lambda: {"rules": (rule,), "weights": (1.0,)}),
        "evenhand.Mixture.from_json": Call(eh.Mixture.from_json, lambda: {"text": mixture.to_json()}),
        "evenhand.Rule.to_sql": Call(
            rule.to_sql,
            lambda: {"p_y": "p", "p_group": {(0, "0"): "a", (0, "1"): "b", (1, "0"): "c", (1, "1"): None}},
        ),
        "evenhand.Mixture.to_sql": Call(
            mixture.to_sql,
            lambda: {
                "p_y": "p", "p_group": {(0, "0"): "a", (0, "1"): "b", (1, "0"): "c", (1, "1"): None}, "key": "id",
            },
        ),
        "evenhand.Rule.linear_form": Call(rule.linear_form),
        "evenhand.FairClassifier": Call(
            _fit, _fitting, foreign=("estimator", "X", "auxiliary", "cv", "search"), also=OPTIONS, slow=True
        ),
        "evenhand.FairClassifier.with_tolerance": Call(fair.with_tolerance, lambda: {"tolerance": 0.3}),
        "evenhand.FairClassifier.predict_proba": Call(
            fair.predict_proba, lambda: {"X": _rows()["X"]}, foreign=("X",)
        ),
        "evenhand.FairClassifier.score": Call(
            _of_fair("score"), lambda: {**_predicting(), "y": _rows()["y"]}, foreign=("X",)
        ),
        "evenhand.io.save": Call(eh.io.save, lambda: {"estimator": fair, "path": "fair.skops"}),
        "evenhand.io.load": Call(eh.io.load, lambda: {"path": _saved("fair.skops"), "trusted": ()}),
        "evenhand.datasets.make_zafar": Call(eh.datasets.make_zafar, lambda: {"n": 30}),
        "evenhand.datasets.load_celeba": Call(eh.datasets.load_celeba, lambda: {"directory": _celeba_folder()}),
        "evenhand.datasets.CelebA.take": Call(_celeba().take, lambda: {"rows": np.array([0])}),
        "evenhand.datasets.CelebA.image": Call(_celeba().image, lambda: {"row": 0}),
        "evenhand.datasets.ZafarDataset.take": Call(_zafar().take, lambda: {"rows": np.array([0, 1])}),
        "evenhand.datasets.ZafarDataset.splits": Call(_zafar().splits, lambda: {"sizes": (10, 10, 10)}),
        "evenhand.datasets.ZafarDataset.as_frame": Call(_zafar().as_frame),
        "evenhand.datasets.ZafarDataset.true_joint": Call(_zafar().true_joint, lambda: {"X": _rows()["X"]}),
        "evenhand.metrics.GroupRates.by_group": Call(
            eh.metrics.group_rates(**_measuring()).by_group, lambda: {"rate": "selection_rate"}
        ),
        "evenhand.engines.arrow.learn_rule": Call(
            _late("evenhand.engines.arrow", "learn_rule"), _engine(_table), also=ENGINE_OPTIONS
        ),
        "evenhand.engines.arrow.aggregate": Call(_late("evenhand.engines.arrow", "aggregate"), _counting(_table)),
        "evenhand.engines.arrow.apply": Call(_apply_arrow, _applying(_table), also=("prefix", "keep")),
        "evenhand.engines.duckdb.learn_rule": Call(
            _late("evenhand.engines.duckdb", "learn_rule"), _engine(_relation), also=ENGINE_OPTIONS, slow=True
        ),
        "evenhand.engines.duckdb.aggregate": Call(
            _late("evenhand.engines.duckdb", "aggregate"), _counting(_relation), slow=True
        ),
        "evenhand.engines.duckdb.apply": Call(
            _apply_duckdb, _applying(_relation), also=("prefix", "keep", "memory_limit"), slow=True
        ),
        "evenhand.engines.Aggregate.coarsen": Call(cells.coarsen, lambda: {"level": 3}),
        "evenhand.engines.Aggregate.learn_rule": Call(
            cells.learn_rule, lambda: {"tolerance": 0.2, "search": Directions(8)}
        ),
        "evenhand.engines.Aggregate.error_bound": Call(cells.error_bound, lambda: {"rule": _counted_rule()}),
        "evenhand.engines.Aggregate.save": Call(cells.save, lambda: {"path": "counts.parquet"}),
        "evenhand.engines.Aggregate.load": Call(type(cells).load, lambda: {"path": _saved("counts.parquet")}),
        "evenhand.engines.NearAggregate.save": Call(_near().save, lambda: {"path": "near.parquet"}),
        "evenhand.engines.NearAggregate.load": Call(type(_near()).load, lambda: {"path": _saved("near.parquet")}),
        "evenhand.export.mlflow.save_model": Call(
            _late("evenhand.export.mlflow", "save_model"),
            lambda: {"fair": fair, "path": f"model-{secrets.token_hex(4)}", "X_sample": _rows()["X"]},
            foreign=("X_sample",),
            slow=True,
        ),
        "evenhand.export.mlflow.load_classifier": Call(
            _late("evenhand.export.mlflow", "load_classifier"), lambda: {"path": _saved("model")}
        ),
        "evenhand.export.onnx.rule_to_onnx": Call(
            _late("evenhand.export.onnx", "rule_to_onnx"), lambda: {"rule": rule, "path": "rule.onnx", **_deciding()}
        ),
        "evenhand.export.onnx.classifier_to_onnx": Call(
            _late("evenhand.export.onnx", "classifier_to_onnx"),
            lambda: {"fair": fair, "path": "fair.onnx", "X_sample": _rows()["X"]},
            foreign=("X_sample",),
            slow=True,
        ),
        "evenhand.report.summarize": Call(_late("evenhand.report", "summarize"), _summarizing, slow=True),
        "evenhand.report.render_html": Call(_late("evenhand.report", "render_html"), lambda: {"summary": _summary()}),
        "evenhand.report.write_report": Call(
            _late("evenhand.report", "write_report"), lambda: {"summary": _summary(), "path": "report.html"}
        ),
        "evenhand.report.write_standard": Call(
            _late("evenhand.report", "write_standard"),
            lambda: {"found": _standard(), "path": "standard.html", "title": "a"},
        ),
        "evenhand.report.write_watch": Call(
            _late("evenhand.report", "write_watch"), lambda: {"watch": _watch(), "path": "watch.html", "title": "a"}
        ),
        "evenhand.report.rule_card": Call(
            _late("evenhand.report", "rule_card"),
            lambda: {"rule": rule, **_deciding(), "y": _rows()["y"], "sensitive_features": _rows()["group"]},
            also=("tolerance", "confidence", "provenance", "random_state", "held_out", "sample_weight"),
            slow=True,
        ),
        "evenhand.report.model_card": Call(
            _late("evenhand.report", "model_card"),
            lambda: {
                "fair": fair, "X": _rows()["X"], "y": _rows()["y"], "sensitive_features": _rows()["group"],
            },
            foreign=("X",),
            slow=True,
        ),
        "evenhand.statistics.intervals.effective_counts": Call(
            intervals("effective_counts"), lambda: {"selected": 2.0, "total": 4.0, "squares": 6.0}
        ),
        "evenhand.statistics.intervals.newcombe_interval": Call(intervals("newcombe_interval"), _two_counts),
        "evenhand.statistics.intervals.rows_needed": Call(
            intervals("rows_needed"), lambda: {**_counts(), "tolerance": 0.05}
        ),
        "evenhand.statistics.bounds.exact_upper_bound": Call(bounds("exact_upper_bound"), lambda: dict(linear)),
        "evenhand.statistics.bounds.exact_within": Call(bounds("exact_within"), lambda: {**linear, "limit": 0.1}),
    }  # fmt: skip
    for name in ("decide", "read_columns"):
        found[f"evenhand.Rule.{name}"] = Call(getattr(rule, name), _deciding)
    inside = {"strata": {"job": _strata()}}
    for name in ("decision_function", "bias_scores", "explain"):
        found[f"evenhand.Rule.{name}"] = Call(getattr(_stratified_rule(), name), lambda: {**_deciding(), **inside})
    found["evenhand.Rule.for_stratum"] = Call(_stratified_rule().for_stratum, lambda: {"strata": "x"})
    found["evenhand.Mixture.for_stratum"] = Call(_stratified_mixture().for_stratum, lambda: {"strata": "x"})
    for name in ("decide", "expected_decision", "lots", "bias_scores", "explain"):
        found[f"evenhand.Mixture.{name}"] = Call(getattr(mixture, name), _deciding)
    for name in ("predict", "decision_function", "expected_decision", "bias_scores", "explain", "probabilities"):
        found[f"evenhand.FairClassifier.{name}"] = Call(_of_fair(name), _predicting, foreign=("X",))
    for name in ("wilson_interval",):
        found[f"evenhand.statistics.intervals.{name}"] = Call(intervals(name), _counts)
    sequences = functools.partial(_late, "evenhand.statistics.sequences")
    found["evenhand.statistics.sequences.rate_sequence"] = Call(sequences("rate_sequence"), _counts)
    found["evenhand.statistics.sequences.restart_share"] = Call(sequences("restart_share"), lambda: {"start": 3})
    for name in ("clopper_pearson_interval", "clopper_pearson_lower", "clopper_pearson_upper"):
        found[f"evenhand.statistics.bounds.{name}"] = Call(bounds(name), _counts)
    for name in ("Certified", "Directions", "Dual", "Lines", "Smoothed"):
        found[f"evenhand.{name}.solve"] = Call(getattr(eh, name)().solve, lambda: dict(solved), left=("problem",))
    found |= _metric_calls() | _table_calls() | _criterion_calls()
    return found


def hostile_values(call: Call, parameter: str) -> dict[str, Value]:
    """Return everything that a parameter is given: values of any kind, and its right value damaged."""
    right = call.right()
    return {**VALUES, **(damages(right[parameter]) if parameter in right else {})}


def problem_with(name: str, changes: Mapping[str, Any]) -> str:
    """Call a public name with something wrong; return what is wrong with the answer, "" for nothing."""
    call = calls()[name]
    foreign = any(parameter in call.foreign for parameter in changes)
    with _apart():
        try:
            call.run(**{**call.right(), **changes})
        except NotFittedError:
            return ""
        except EvenhandError as error:
            return "" if str(error).strip() else "an error that says nothing"
        except Warning as warning:
            own = foreign or type(warning).__module__.startswith("evenhand")
            return "" if own else traceback.format_exc(limit=-4)
        except Exception as error:
            return "" if foreign and not _raised_here(error) else traceback.format_exc(limit=-4)
    return ""


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Run a block in a folder of its own, without its messages, and with the warnings of others as errors."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(_folder()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", EvenhandWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="evenhand|calls")
        yield


@functools.cache
def _folder() -> str:
    return tempfile.mkdtemp(prefix="evenhand-fuzz-")


def _raised_here(error: BaseException) -> bool:
    """Tell whether an exception comes from the library's own code, or from a model that was handed in."""
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename).is_relative_to(Path(eh.__file__).parent)
