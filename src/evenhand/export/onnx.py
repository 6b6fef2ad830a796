"""Rules and whole classifiers as ONNX files, for any runtime (extra ``onnx``).

Every export is verified: the graph is first run in onnxruntime and compared with Python, row by row. All labels must be
equal. The fair margins may differ by as much as they would if each probability were off by ``PROBABILITY_SLACK``, the
effect of single precision inside a converted model. The rule itself, linear models, scikit-learn's networks and
histogram gradient boosting compute in double precision; MLP and the boosted trees of other libraries in single. Forests
add in double precision and return the sum in single. If a graph disagrees, :class:`DisagreementError` is raised.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_flag, check_path, shown
from evenhand.errors import DisagreementError, InputError
from evenhand.estimator.classifier import FairClassifier
from evenhand.estimator.sample import strata_columns
from evenhand.export.onnx_graph import Graph, add_recalibration, add_rule, require
from evenhand.export.onnx_lots import KEY, add_mixture
from evenhand.export.onnx_models import ModelGraph, has_boosting
from evenhand.export.onnx_strata import (
    ML_OPSET,
    Strata,
    add_strata,
    as_feeds,
    by_stratum,
    given_strata,
    sample_strata,
    strata_in_graph,
)
from evenhand.files import whole_or_nothing
from evenhand.inputs import FloatArray, GroupProbabilities, SensitiveFeatures, read_probabilities
from evenhand.rules.events import AttributeKey, display_names
from evenhand.rules.lots import LARGEST_KEY
from evenhand.rules.mixture import Mixture, check_any_rule
from evenhand.rules.rule import Rule, class_array
from evenhand.rules.rule_strata import read_plain, with_strata
from evenhand.rules.strata import read_strata

PROBABILITY_SLACK = 1e-6
RULE_OPSET, RULE_IR = 13, 8
CHECKED_ROWS = 10_000


@dataclass(frozen=True)
class Agreement:
    """The result of the comparison with Python: all labels are equal on this number of rows.

    Attributes
    ----------
    rows : int
        The number of compared rows.
    margin_difference : float
        The largest difference of the fair margins.
    """

    rows: int
    margin_difference: float


def rule_to_onnx(
    rule: Rule | Mixture,
    path: str | os.PathLike[str],
    *,
    p_y: ArrayLike | None = None,
    p_group: GroupProbabilities | None = None,
    keyed: bool = True,
    strata: SensitiveFeatures | None = None,
) -> Agreement:
    """Write a rule as an ONNX file: probabilities in, label and fair margin out.

    The inputs are ``p_y``, doubles of shape (rows,), and ``p_group``, doubles of shape (rows, G), or (rows, 2,
    G) if the rule needs p(Y, A | x); a rule about several attributes has ``p_group_NAME`` for each. The
    outputs are ``label`` and ``fair_margin``, of shape (rows,). The rule's JSON is in the file's metadata, as
    ``evenhand.rule``.

    A mixture has ``expected_decision``, the probability of a positive decision, and ``lot`` instead of ``fair_margin``,
    and one more input, ``key``: 64-bit whole numbers of shape (rows,) that identify the rows. The lot is computed in
    the graph and equals that of Python. Pass a text key as the number that :func:`evenhand.rules.lots.key_numbers`
    returns, because ONNX has no MD5.

    A rule or mixture with strata has one more input, ``stratum``, text or 64-bit whole numbers of shape (rows,); a rule
    with several columns of strata has ``stratum_NAME`` for each. With ``thin`` in the criterion, a new stratum is
    decided by the parts of the criterion that are not within it, or by the model alone; otherwise its margin is NaN.

    A graph does not check its input: if a probability is NaN, the margin is NaN and the label negative; a value outside
    [0, 1] is clipped.

    Parameters
    ----------
    rule : Rule or Mixture
        The rule.
    path : path
        The file; it is written completely after the comparison, or not at all.
    p_y, p_group : default=None
        Rows for the comparison, as in :meth:`evenhand.Rule.decide`. ``None`` draws 10,000.
    keyed : bool, default=True
        Whether the draws of a mixture use the input ``key``, or the scores. It has no effect on a rule.
    strata : default=None
        Each row's stratum for the comparison, with ``p_y``, as in :meth:`evenhand.Rule.decide`.

    Returns
    -------
    Agreement
        The number of compared rows and the largest difference.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import evenhand as eh
    >>> from evenhand.export.onnx import rule_to_onnx
    >>> rule = eh.Rule.from_criterion("dp", groups={"sex": ("F", "M")}, priors=[0.5, 0.5], z=[0.125])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rule_to_onnx(rule, Path(folder) / "rule.onnx")
    Agreement(rows=10000, margin_difference=0.0)
    """
    check_any_rule(rule)
    check_path(path)
    check_flag(keyed, "keyed")
    first = rule.rules[0] if isinstance(rule, Mixture) else rule
    p, columns = _sample_columns(first) if p_y is None else _given_columns(first, p_y, p_group)
    if not len(p):
        raise InputError("p_y has no rows: pass some rows for the comparison, or leave p_y out to draw them.")
    graph = Graph()
    inside = _strata(first, len(p), strata, drawn=p_y is None)
    places = add_strata(graph, first)
    given: dict[str, Any] = {"strata": inside} if inside else {}
    graph.input("p_y", ["rows"])
    joint = {name: array.ndim == 3 for name, array in columns.items()}
    edges = {}
    for name in rule.attributes:
        edge = group_input(rule, name)
        size = len(rule.groups[name])
        edges[name] = graph.input(edge, ["rows", 2, size] if joint[name] else ["rows", size])
    feeds: dict[str, NDArray[Any]] = {"p_y": p, **{edges[name]: array for name, array in columns.items()}}
    feeds |= as_feeds(first, inside)
    about: dict[str, Any] = {
        "opset": RULE_OPSET,
        "ml_opset": ML_OPSET if inside else None,
        "ir_version": RULE_IR,
        "metadata": {"evenhand.rule": rule.to_json()},
    }
    if isinstance(rule, Mixture):
        key = _sample_keys(len(p)) if keyed else None
        if key is not None:
            feeds[graph.input(KEY, ["rows"], whole=True)] = key
        choose = _choose(graph, first, places)
        add_mixture(graph, rule, "p_y", edges, joint, rule.classes, KEY if keyed else None, choose)
        drawn = rule.lots(p, columns or None, key=key, **given)
        expected = rule.expected_decision(p, columns or None, **given)
        return _check_drawn_and_write(graph.model(**about), feeds, class_array(rule.classes), expected, drawn, path)
    add_rule(graph, rule, "p_y", edges, joint, rule.classes, strata_in_graph(rule), places)
    margin = rule.decision_function(p, columns or None, **given)
    return _check_and_write(graph.model(**about), feeds, class_array(rule.classes), margin, 0.0, path)


def _strata(rule: Rule, n_rows: int, strata: SensitiveFeatures | None, *, drawn: bool) -> Strata:
    """Return the strata to compare on, by column; empty without strata."""
    if not rule.strata:
        read_strata(strata, (), n_rows)
        return {}
    return sample_strata(rule, n_rows) if drawn else given_strata(rule, strata, n_rows)


def _choose(graph: Graph, rule: Rule, places: Mapping[str, str]) -> Callable[[Callable[[Any], str]], str] | None:
    """Return how the graph of a mixture chooses each row's numbers; None without strata."""
    return (lambda add: by_stratum(graph, rule, places, add)) if rule.strata else None


def _sample_keys(n: int) -> NDArray[np.int64]:
    """Return keys of every size to compare on."""
    drawn = np.random.default_rng(1).integers(0, LARGEST_KEY, n, endpoint=True, dtype=np.int64)
    return np.where(np.arange(n) % 2 == 0, np.arange(n), drawn)


def group_input(rule: Rule | Mixture, attribute: AttributeKey) -> str:
    """Return the name of the input that holds an attribute's probabilities."""
    return "p_group" if len(rule.attributes) == 1 else f"p_group_{display_names(rule.groups)[attribute]}"


def classifier_to_onnx(fair: FairClassifier, path: str | os.PathLike[str], X_sample: Any) -> Agreement:
    """Write a whole classifier, its models and its rule, as one ONNX file.

    X as an array is one input ``X``, doubles of shape (rows, features); X as a frame is an input for each
    column, of shape (rows, 1), doubles or text. The outputs are ``label``, ``fair_margin`` (positive iff the label
    is the positive one) and ``probability``, the base model's P(Y = positive | x). With ``randomize=True`` there are
    ``expected_decision`` and ``lot`` instead of ``fair_margin``, and one more input, ``key``, as in
    :func:`rule_to_onnx`; draws by scores are not supported here, because scores may differ from Python's in their
    last digit. The models are converted with skl2onnx, those of LightGBM and XGBoost with onnxmltools, and those of
    CatBoost with its own exporter.
    With strata there is one more input, ``stratum``, or ``stratum_NAME`` for each of several columns, as in
    :func:`rule_to_onnx`: the values of the column that ``within`` names, which remains a feature as well.
    Histogram gradient boosting, forests and :class:`evenhand.paper.models.MLP`, alone or at the end of a Pipeline, have
    their own converters here, because the standard ones would round the thresholds or the sums.

    Parameters
    ----------
    fair : FairClassifier
        A fitted classifier. Frozen models are unwrapped, an ensemble is averaged.
    path : path
        The file; it is written completely after the comparison, or not at all.
    X_sample : array or frame
        Rows for the comparison, the more the better: the validation set, or some days of production. With strata,
        each row is compared twice: in its own stratum, and in any other, so that every stratum is compared.

    Returns
    -------
    Agreement
        The number of compared rows and the largest difference.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import evenhand as eh
    >>> from evenhand.export.onnx import classifier_to_onnx
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = eh.datasets.make_zafar(600, random_state=0)
    >>> fair = eh.FairClassifier(LogisticRegression(), tolerance=0.1, random_state=0)
    >>> fair = fair.fit(data.X, data.y, sensitive_features=data.group)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     classifier_to_onnx(fair, Path(folder) / "fair.onnx", data.X).rows
    600
    """
    if not isinstance(fair, FairClassifier):
        raise InputError(f"fair must be a FairClassifier; got {shown(fair)}.")
    check_path(path)
    if fair.sensitive_at_predict:
        raise InputError(
            "This classifier decides with the sensitive attribute itself, which its ONNX graph would not have:"
            " export its rule with rule_to_onnx(fair.rule_, path), and pass the probabilities to that."
        )
    first = fair.rule_.rules[0] if isinstance(fair.rule_, Mixture) else fair.rule_
    (p_y, p_group), X = fair.probabilities(X_sample), fair._features(X_sample)
    if not len(p_y):
        raise InputError("X_sample has no rows: pass some rows for the comparison.")
    strata_in_graph(first)
    models = fair._models
    graph = ModelGraph(X, boosts=has_boosting(models))
    edge = graph.probabilities(models.estimator, models.classes)
    probability = graph.column(edge, models.positive_index)
    groups, joint = {}, {}
    for name, layout in models.layouts.items():
        found = graph.probabilities(models.auxiliaries[name], layout.classes)
        groups[name] = graph.arranged(found, layout)
        joint[name] = layout.joint
    decisive = probability
    if models.recalibration is not None:
        decisive, groups = add_recalibration(graph, models.recalibration, probability, groups, joint)
    classes = fair.classes_.tolist()
    labels = [classes[1 - models.positive_index], classes[models.positive_index]]
    rule, ordered = fair.rule_, fair.classes_[[1 - models.positive_index, models.positive_index]]
    graph.output("probability", probability, graph.onnx.TensorProto.DOUBLE, ["rows"])
    about, feeds, places = {"evenhand.rule": rule.to_json()}, graph.feeds(X), add_strata(graph, first)
    if first.strata:
        # Strata that are not in the sample are compared, too.
        own = given_strata(first, strata_columns(X_sample, first.strata), len(p_y))
        inside = {name: np.append(own[name], other) for name, other in sample_strata(first, len(p_y)).items()}
        feeds = {name: np.concatenate([array, array]) for name, array in feeds.items()} | as_feeds(first, inside)
        p_y = np.append(p_y, p_y)
        plain = {name: np.concatenate([p_group[name], p_group[name]]) for name in first.attributes}
        p_group = cast(dict[AttributeKey, FloatArray], with_strata(first, p_y, plain, inside))
    if isinstance(rule, Mixture):
        key = _sample_keys(len(p_y))
        feeds[graph.input(KEY, ["rows"], whole=True)] = key
        add_mixture(graph, rule, decisive, groups, joint, labels, KEY, _choose(graph, first, places))
        expected, drawn = rule.expected_decision(p_y, p_group or None), rule.lots(p_y, p_group or None, key=key)
        return _check_drawn_and_write(graph.finish(about), feeds, ordered, expected, drawn, path)
    add_rule(graph, rule, decisive, groups, joint, labels, strata_in_graph(rule), places)
    margin = rule.decision_function(p_y, p_group or None)
    form = rule.linear_form(joint={**joint, **{key: joint[key.attribute] for key in rule.stratified}})
    scale = form.slope + sum(float(np.abs(weights).sum()) for weights in form.columns.values())
    return _check_and_write(graph.finish(about), feeds, ordered, margin, PROBABILITY_SLACK * scale, path)


def _given_columns(
    rule: Rule, p_y: ArrayLike, p_group: GroupProbabilities | None
) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
    """Return the probabilities of the label, and those of the groups by attribute."""
    p = read_probabilities(p_y, "p_y", shape=(None,))
    columns = read_plain(rule, p, p_group) if rule.strata else rule.read_columns(p, p_group)
    return p, {name: np.ascontiguousarray(array) for name, array in columns.items()}


def _sample_columns(rule: Rule) -> tuple[FloatArray, dict[AttributeKey, FloatArray]]:
    """Return random probabilities, including certain ones."""
    rng = np.random.default_rng(0)
    n = CHECKED_ROWS
    p = np.concatenate([[0.0, 1.0, 0.5], rng.random(n - 3)])
    found = {}
    for name in rule.attributes:
        size = len(rule.groups[name])
        cells = 2 * size if rule.needs_joint else size
        array = np.concatenate([np.eye(cells), rng.dirichlet(np.ones(cells), n - cells)])
        found[name] = array.reshape(n, 2, size) if rule.needs_joint else array
    return p, found


def _check_and_write(
    model: Any,
    feeds: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    margin: FloatArray,
    slack: float,
    path: str | os.PathLike[str],
) -> Agreement:
    """Compare a graph with Python's fair margins, and write it if they agree."""
    content, (label, fair) = _run(model, feeds, ["label", "fair_margin"])
    expected = labels[(margin > 0.0).astype(np.intp)]
    differ = np.flatnonzero(np.asarray(label).ravel() != expected)
    difference = np.abs(fair - margin)
    worst = int(np.argmax(difference))
    if differ.size:
        first = int(differ[0])
        near = np.abs(margin[differ]).max() <= slack
        remedy = (
            " All of them are within rounding of the boundary: a model that converts in double precision, such as"
            " a linear one or histogram gradient boosting, has none."
            if near
            else ""
        )
        raise DisagreementError(
            f"The ONNX graph decides {differ.size} of {len(margin)} rows differently from Python, so nothing was"
            f" written. The first is row {first}: {label[first]!r} with fair margin {fair[first]:.9g}, in Python"
            f" {expected[first]!r} with {margin[first]:.9g}.{remedy}"
        )
    if not difference[worst] <= slack:
        raise DisagreementError(
            f"The ONNX graph's fair margin is off by {difference[worst]:.3g} in row {worst}, more than"
            f" rounding explains ({slack:.3g}), so nothing was written: some model was not converted exactly."
        )
    with whole_or_nothing(path) as temporary:
        temporary.write_bytes(content)
    return Agreement(len(margin), float(difference[worst]))


def _check_drawn_and_write(
    model: Any,
    feeds: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    expected: FloatArray,
    drawn: FloatArray,
    path: str | os.PathLike[str],
) -> Agreement:
    """Compare a graph with Python's probabilities and lots, and write it if all are equal."""
    content, (label, chance, lot) = _run(model, feeds, ["label", "expected_decision", "lot"])
    decided = labels[(drawn < expected).astype(np.intp)]
    differ = np.flatnonzero((np.asarray(label).ravel() != decided) | (chance != expected) | (lot != drawn))
    if differ.size:
        first = int(differ[0])
        raise DisagreementError(
            f"The ONNX graph decides {differ.size} of {len(drawn)} rows differently from Python, so nothing was"
            f" written. The first is row {first}: {label[first]!r} with chance {chance[first]:.9g} and lot"
            f" {lot[first]:.9g}, in Python {decided[first]!r} with {expected[first]:.9g} and {drawn[first]:.9g}."
        )
    with whole_or_nothing(path) as temporary:
        temporary.write_bytes(content)
    return Agreement(len(drawn), 0.0)


def _run(model: Any, feeds: Mapping[str, NDArray[Any]], names: list[str]) -> tuple[bytes, list[Any]]:
    """Return a model's bytes, and some of its outputs as onnxruntime computes them."""
    runtime = require("onnxruntime")
    content = model.SerializeToString()
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return content, session.run(names, dict(feeds))
    except Exception as error:
        reason = " ".join(str(error).split())[-300:]
        raise InputError(f"onnxruntime cannot run this classifier, so nothing was written: {reason}") from None
