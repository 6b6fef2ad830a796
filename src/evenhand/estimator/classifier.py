"""FairClassifier: scikit-learn's interface around probabilities, cross-fitting and a fair rule."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Hashable, Mapping
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from evenhand._compat import HasMethods, Interval, RealNotInt, StrOptions, routing_enabled, validated
from evenhand.arguments import Seed
from evenhand.display import Description
from evenhand.errors import EvenhandWarning, InfeasibleError, InputError
from evenhand.estimator import crossfit
from evenhand.estimator.auxiliary import certain, choose_auxiliaries, needed_targets
from evenhand.estimator.crossfit import Ensemble, Learner, Models, cross_fit, make_plan
from evenhand.estimator.diagnostics import Diagnostics, diagnose
from evenhand.estimator.heldout import HeldOut
from evenhand.estimator.learners import Layouts, Targets, joint_alone, label_and_groups, with_marginal
from evenhand.estimator.predicting import Predictions
from evenhand.estimator.recalibration import Recalibration
from evenhand.estimator.sample import (
    RowNumbers,
    Sample,
    check_not_lazy,
    find_columns,
    read_sample,
    strata_columns,
    take_rows,
)
from evenhand.inputs import FloatArray, Missing, SensitiveFeatures
from evenhand.plausibility import warn_of_decisions, warn_of_reversed_groups
from evenhand.rules.confidence import check_unweighted, learn_certified
from evenhand.rules.criteria import Criterion, check_tolerance, resolve
from evenhand.rules.determinism import Determinism, determinism
from evenhand.rules.events import display_names
from evenhand.rules.evidence import EvidenceName
from evenhand.rules.frontier import Frontier, frontier_of
from evenhand.rules.ladder import best_rule
from evenhand.rules.mixed_confidence import certify_mixture
from evenhand.rules.mixing import best_mixture, check_lots
from evenhand.rules.mixture import Mixture
from evenhand.rules.reserving import reserve_enough
from evenhand.rules.rule import Rule
from evenhand.rules.safety import check_safety
from evenhand.rules.scores import attribute_key, read_costs
from evenhand.rules.setting import Options
from evenhand.statistics.intervals import check_confidence

MOST_JOBS = 10_000
JOINT = "joint"


class FairClassifier(Predictions, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose decisions are fair between groups, at the least cost in accuracy.

    It trains ``estimator`` for p(Y|x) and an auxiliary model for the groups, then learns from their probabilities the
    best rule that meets ``criterion``. ``predict(X)`` needs no sensitive attribute.

    Parameters
    ----------
    estimator : classifier with predict_proba
        The base model. Wrap a model that is already trained in :class:`sklearn.frozen.FrozenEstimator`.
    auxiliary : classifier, dict of classifiers by attribute, "joint" or None, default=None
        The model of the groups, cloned for each attribute that the criterion needs. ``None`` clones ``estimator``. Its
        targets are whole numbers. If p(A|x) is enough (demographic parity), they are the index of the group among the
        sorted groups. Otherwise they are ``label * G + group``, where label is 0 for the negative and 1 for the
        positive label, G is the number of groups and group is that index. A frozen model may have these numbers as its
        ``classes_``, or the groups themselves, or tuples ``(label, group)``, in any order. "joint" trains one model
        instead of two: ``estimator`` learns p(Y, A|x), and p(Y|x) is its sum over the groups. Only for one attribute.
    criterion : str or Criterion, default="demographic_parity"
        The fairness criterion. With several attributes, each must meet it; to cross them, as fairlearn does, use
        :class:`evenhand.Intersection`. A criterion with ``within="occupation"`` compares groups inside each stratum of
        that column of X, which ``predict`` also needs; in an array, ``within="x3"`` is column 3.
    tolerance : float, default=0.05
        The largest allowed difference of rates.
    search : {"certified", "directions", "lines", "dual", "smoothed"} or a search, default="certified"
        How the rule is found; see :func:`evenhand.learn_rule`.
    cv : int, splitter, iterable of splits, float in (0, 1) or None, default=5
        How the probabilities for the rule are made. A number of folds or a splitter cross-fits: each row's
        probabilities come from models that were not trained on it, and the rule is learnt on all rows. Folds are
        stratified by label and group; a splitter gets that combination as its ``y``. A float holds out that share of
        the rows for the rule and trains on the rest. ``None`` requires frozen models and uses all rows for the rule.
    ensemble : bool or "matched", default=True
        Whether predictions average the models of the folds, instead of using final models trained on all rows. The
        average needs one model fewer to train, is more accurate at equal gaps, and predicts with one model for each
        fold. Without folds it has no effect. "matched" draws the folds three times and averages one model of each, so
        that its probabilities have the same distribution as those the rule is learnt on. This is the safest choice for
        flexible models on a few thousand rows, whose final models differ from those of the folds.
    recalibrate : bool, default=False
        Whether the probabilities are first corrected with the outputs of all models together
        (:mod:`evenhand.estimator.recalibration`), on the rows that the rule is learnt from. In our measurements this
        gained 0.7 to 1.7 points of accuracy for boosted trees on 4,000 rows, and up to 0.1 points on larger data.
    safety : float, default=1.0
        Tighten each bound by this number of standard errors of its value, but to no less than half of the tolerance.
        If the model already meets the bounds, it is left unchanged (:mod:`evenhand.rules.safety`). 0 is the paper's
        rule, which exceeds the tolerance on new rows about half of the time.
    confidence : float or None, default=None
        Guarantee that every constraint holds in the population with this probability, for exactly the returned
        classifier (:mod:`evenhand.rules.confidence`). Half of the rows are then reserved to certify the rule, and no
        model or search uses them. The details are in ``rule_.learned_from["confidence"]``.
    objective : str, default="accuracy"
        What the rule maximises: "accuracy", "balanced_accuracy", or an F score such as "f1", "f2" or "f0.5"; see
        :func:`evenhand.learn_rule`.
    costs : (false positive, false negative) or dict, default=None
        Minimise the mean cost instead of maximising accuracy.
    randomize : bool, default=False
        Whether decisions may be random: ``rule_`` is then a :class:`evenhand.Mixture` that meets the bounds on average,
        also at tolerances that no single rule meets. Pass ``predict`` a ``key``, such as customer numbers, so that the
        same person always gets the same random draw. Read the page on lotteries before you use one on people. It
        requires the certified search.
    missing : {"raise", "ignore"}, default="raise"
        Whether rows of unknown group are an error. With "ignore" they train the base model and count for accuracy,
        but not for any group's rate.
    evidence : {"labels", "model", "both"}, default="labels"
        What the rule is learnt from; see :func:`evenhand.learn_rule`.
    sensitive_at_predict : bool, default=False
        Whether decisions use the attribute itself. The rule is then a threshold for each group, no auxiliary model is
        trained, and ``predict`` requires ``sensitive_features``.
    sensitive_columns : column, or list of columns, of X, default=None
        The columns of X that contain the attributes, by name in a frame or by number in an array, as an alternative to
        passing ``sensitive_features``.
    drop_sensitive : bool, default=True
        Whether those columns are hidden from the models. If so, ``predict`` takes X with or without them.
    pos_label : label or None, default=None
        The positive label; ``None`` is ``classes_[1]``.
    random_state : int, RandomState instance or None, default=None
        Seeds the shuffling of the folds, and the models whose own ``random_state`` is None. An int gives the same
        result each time.
    n_jobs : int or None, default=None
        How many models are trained in parallel. It does not change the result.
    verbose : int, default=0
        1 shows progress on standard error.

    Attributes
    ----------
    rule_ : Rule, or Mixture with ``randomize=True``
        The rule; ``rule_.solution_`` contains what the search proved.
    diagnostics_ : Diagnostics
        Counts of each label in each group, and calibration and AUC of the probabilities.
    held_out_ : HeldOut
        The rows and probabilities that the rule was learnt from.
    estimator_ : classifier
        The fitted base model.
    auxiliary_ : classifier, dict of classifiers by attribute, or None
        The fitted auxiliary model; the key of a crossed attribute is its Intersection. None if the criterion or
        ``sensitive_at_predict`` makes it unnecessary.
    classes_ : ndarray of shape (2,)
        The labels.
    n_features_in_ : int
        Number of features seen during fit. Only defined if the base model exposes it.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during fit. Only defined if the base model exposes them.

    Examples
    --------
    >>> import evenhand as eh
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = eh.datasets.make_zafar(1200, random_state=0)
    >>> fair = eh.FairClassifier(LogisticRegression(), tolerance=0.05, random_state=0)
    >>> fair.fit(data.X, data.y, sensitive_features=data.group).predict(data.X[:4]).shape
    (4,)
    >>> max(map(abs, fair.rule_.solution_.values)) <= 0.05
    True
    >>> fair.with_tolerance(0.2).score(data.X, data.y) > fair.score(data.X, data.y)
    True
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "auxiliary": [HasMethods(["fit", "predict_proba"]), dict, StrOptions({JOINT}), None],
        "criterion": [str, Criterion],
        "tolerance": "no_validation",  # type: ignore[dict-item]
        "search": [str, HasMethods(["solve"])],
        "cv": ["cv_object", Interval(RealNotInt, 0, 1, closed="neither")],
        "ensemble": ["boolean", StrOptions({"matched"})],
        "recalibrate": ["boolean"],
        "safety": "no_validation",  # type: ignore[dict-item]
        "confidence": "no_validation",  # type: ignore[dict-item]
        "objective": [str],
        "costs": [tuple, list, dict, None],
        "randomize": ["boolean"],
        "missing": [StrOptions({"raise", "ignore"})],
        "evidence": [StrOptions({"labels", "model", "both"})],
        "sensitive_at_predict": ["boolean"],
        "sensitive_columns": [str, Integral, "array-like", None],
        "drop_sensitive": ["boolean"],
        "pos_label": "no_validation",  # type: ignore[dict-item]
        "random_state": ["random_state"],
        "n_jobs": [*(Interval(Integral, *ends, closed="both") for ends in ((1, MOST_JOBS), (-MOST_JOBS, -1))), None],
        "verbose": ["verbose"],
    }

    _frontier: Frontier
    diagnostics_: Diagnostics

    def __init__(
        self,
        estimator: Any,
        *,
        auxiliary: Any = None,
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.05,
        search: Any = "certified",
        cv: Any = 5,
        ensemble: Ensemble = True,
        recalibrate: bool = False,
        safety: float = 1.0,
        confidence: float | None = None,
        objective: str = "accuracy",
        costs: Any = None,
        randomize: bool = False,
        missing: Missing = "raise",
        evidence: EvidenceName = "labels",
        sensitive_at_predict: bool = False,
        sensitive_columns: Any = None,
        drop_sensitive: bool = True,
        pos_label: Hashable | None = None,
        random_state: Seed = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.auxiliary = auxiliary
        self.criterion = criterion
        self.tolerance = tolerance
        self.search = search
        self.cv = cv
        self.ensemble = ensemble
        self.recalibrate = recalibrate
        self.safety = safety
        self.confidence = confidence
        self.objective = objective
        self.costs = costs
        self.randomize = randomize
        self.missing = missing
        self.evidence = evidence
        self.sensitive_at_predict = sensitive_at_predict
        self.sensitive_columns = sensitive_columns
        self.drop_sensitive = drop_sensitive
        self.pos_label = pos_label
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @validated
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sensitive_features: SensitiveFeatures | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train the models and learn the rule.

        Parameters
        ----------
        X : any input that the base model accepts
            The features. X is only indexed by rows, not converted.
        y : array of shape (n,)
            Labels, any two values.
        sensitive_features : array, Series, frame or dict of columns, default=None
            Each row's group. Each column is one attribute. Rows of all arguments are matched by position; two pandas
            objects with different indexes are an error.
        sample_weight : array of shape (n,), default=None
            Weights for the rule, and for the models whose ``fit`` accepts weights.

        Returns
        -------
        self
        """
        for name in ("rule_", "_frontier", "held_out_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        check_tolerance(self.tolerance)
        check_safety(self.safety)
        if self.confidence is not None:
            check_confidence(self.confidence)
        if self.randomize:
            check_lots(self.search, resolve(self.criterion))
        check_not_lazy(X)
        columns = find_columns(X, self.sensitive_columns, sensitive_features)
        given = sensitive_features if columns is None else columns.read(X)
        features = columns.drop(X) if columns is not None and self.drop_sensitive else X
        strata = strata_columns(X, resolve(self.criterion).strata)
        sample = read_sample(features, y, given, sample_weight, self.pos_label, self.missing, strata)
        self._columns = columns
        return self._fit(sample)

    def _fit(self, sample: Sample) -> Self:
        rng = check_random_state(self.random_state)
        sample = self._with_strata(sample)
        targets = needed_targets(resolve(self.criterion), sample.rows, joint=self._joint)
        learning, certifying = self._reserve(sample, rng)
        learners, layouts = self._learners(sample, targets, rng)
        plan = make_plan(self.cv, sample, targets, learning, ensemble=self.ensemble, rng=rng)
        trained = cross_fit(sample.X, learners, plan, n_jobs=self.n_jobs, verbose=self.verbose)
        if self._joint:
            trained = with_marginal(trained[0], layouts, sample)
        auxiliaries = dict(zip(layouts, trained[1:], strict=True))
        models = {name: found.model for name, found in auxiliaries.items()}
        self.classes_ = sample.classes
        self.estimator_ = trained[0].model
        self.auxiliary_ = models if len(models) > 1 else next(iter(models.values()), None)
        self._set_features()
        held, positive, weight = plan.held_out, sample.positive[plan.held_out], sample.rows.weights[plan.held_out]
        p_y = trained[0].probabilities[:, sample.positive_index]
        p_group = {name: layouts[name].arrange(found.probabilities) for name, found in auxiliaries.items()}
        recalibration = None
        if self.recalibrate:
            codes = {name: targets[name].attribute.codes[held] for name in p_group}
            recalibration = Recalibration.fit(p_y, p_group, positive, codes, weight)
            p_y, p_group = recalibration.apply(p_y, p_group)
        parts = {name: target.without_rows() for name, target in targets.items()}
        labels = sample.classes, sample.positive_index
        self._models = Models(self.estimator_, *labels, models, layouts, parts, recalibration)
        self.diagnostics_ = diagnose(p_y, p_group, targets, sample.rows.classes, held, positive, weight)
        if self.sensitive_at_predict:
            p_group = {name: certain(found, found.attribute.codes[held], p_y) for name, found in targets.items()}
        self.held_out_ = HeldOut.of(sample, held, p_y, p_group)
        warn_of_decisions(p_y)
        warn_of_reversed_groups(p_group, {name: found.attribute.take(held) for name, found in targets.items()}, weight)
        self._certifying = self._certified_part(sample, targets, certifying)
        self._options = self._rule_options(rng)
        self.rule_ = self._learn()
        return self

    def _with_strata(self, sample: Sample) -> Sample:
        """Return the sample with the strata that are compared; all rows decide which strata have too few."""
        criterion = resolve(self.criterion)
        if not criterion.strata:
            return sample
        return dataclasses.replace(sample, rows=sample.rows.for_criterion(criterion))

    def _reserve(self, sample: Sample, rng: np.random.RandomState) -> tuple[RowNumbers, RowNumbers]:
        """Split the rows into those for models and search, and those that only certify."""
        rows = sample.counted
        if self.confidence is None:
            return rows, rows[:0]
        check_unweighted(sample.rows.sample_weight)
        promise = {"tolerance": self.tolerance, "confidence": self.confidence}
        held = reserve_enough(resolve(self.criterion), sample.rows, rng, **promise)
        return rows[~held], rows[held]

    def _certified_part(self, sample: Sample, targets: Targets, rows: RowNumbers) -> HeldOut | None:
        """Return the rows that only certify, with the final models' probabilities."""
        if not len(rows):
            return None
        used = targets if self.sensitive_at_predict else {}
        codes = {name: target.attribute.codes[rows] for name, target in used.items()}
        p_y, p_group = self._models.probabilities(take_rows(sample.X, rows), codes)
        return HeldOut.of(sample, rows, p_y, p_group)

    def _learners(self, sample: Sample, targets: Targets, rng: np.random.RandomState) -> tuple[list[Learner], Layouts]:
        """Return the models to train: first that of the labels, then one for each layout."""
        names = [] if self.sensitive_at_predict else list(targets)
        if self._joint:
            if self.sensitive_at_predict or self.cv is None:
                raise InputError(
                    'auxiliary="joint" trains a model: use it with cv=5 or a share, and without sensitive_at_predict.'
                )
            params = self._fit_params(sample.rows.sample_weight, [self.estimator])
            return joint_alone(targets, self.estimator, params, None if self.random_state is None else rng)
        if self.sensitive_at_predict and self.missing == "ignore":
            raise InputError("sensitive_at_predict=True uses the group to decide: drop rows whose group is missing.")
        if self.sensitive_at_predict and self.auxiliary is not None:
            raise InputError("sensitive_at_predict=True uses the attribute itself: leave auxiliary=None.")
        if self.sensitive_at_predict and self.recalibrate:
            raise InputError(
                "recalibrate=True corrects inferred groups, but sensitive_at_predict=True infers none: use one of them."
            )
        chosen = choose_auxiliaries(self.auxiliary, self.estimator, names)
        params = self._fit_params(sample.rows.sample_weight, [self.estimator, *chosen.values()])
        draw = None if self.random_state is None else rng
        learners, layouts = label_and_groups(sample, targets, self.estimator, chosen, params, draw)
        crossfit.check_frozen(learners, cv=self.cv, ensemble=self.ensemble)
        return learners, layouts

    @property
    def _joint(self) -> bool:
        """Whether one model of p(Y, A|x) is used for labels and groups."""
        return isinstance(self.auxiliary, str)

    def _fit_params(self, weight: FloatArray | None, models: list[Any]) -> dict[int, dict[str, Any]]:
        """Return the extra arguments of each model's fit, by the model's id."""
        if not routing_enabled():
            distinct = {id(model): model for model in models}
            return {key: crossfit.weight_params(model, weight) for key, model in distinct.items()}
        routed = process_routing(self, "fit", **({} if weight is None else {"sample_weight": weight}))
        return {id(model): dict(routed[name]["fit"]) for name, model in self._routed_models().items()}

    def _set_features(self) -> None:
        """Set the feature attributes from X, or from the base model if only the base model validates X."""
        if self._columns is not None and self.drop_sensitive:
            self.n_features_in_ = self._columns.n_features
            if self._columns.feature_names is not None:
                self.feature_names_in_ = np.array(self._columns.feature_names, dtype=object)
            return
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))

    def _learn(self) -> Rule | Mixture:
        """Return the rule learnt on the held-out rows, certified on the reserved rows if there are any."""
        held, options, tolerance = self.held_out_, self._options, self.tolerance
        try:
            rule: Rule | Mixture
            if self._certifying is None or self.confidence is None:
                rule = (best_mixture if self.randomize else best_rule)(held, options, tolerance)
            else:
                learn = certify_mixture if self.randomize else learn_certified
                rule = learn(held, self._certifying, options, tolerance=tolerance, confidence=self.confidence)
        except InfeasibleError as error:
            error.add_note("The trained models are kept: with_tolerance(...) tries another tolerance without training.")
            if self.diagnostics_.weaknesses:
                error.add_note(self.diagnostics_.warning())
            raise
        if self.diagnostics_.weaknesses and np.any(rule.z):
            warnings.warn(self.diagnostics_.warning(), EvenhandWarning, stacklevel=3)
        return rule

    def _rule_options(self, rng: np.random.RandomState) -> Options:
        """Return the options for learning the rule, except the rows and the tolerance."""
        seed = self.random_state
        return Options(
            criterion=resolve(self.criterion),
            search=self.search,
            evidence=self.evidence,
            safety=self.safety,
            objective=self.objective,
            costs=read_costs(self.costs),
            missing=self.missing,
            random_state=seed if isinstance(seed, Integral) else int(rng.randint(2**31 - 1)),
        )

    def frontier(self) -> Frontier:
        """Return the best rule at each of a range of tolerances, from the rows that the rule was learnt from.

        The first call computes it; later calls return the stored result.

        Returns
        -------
        Frontier
        """
        check_is_fitted(self, "held_out_")
        if "_frontier" not in vars(self):
            self._frontier = frontier_of(self.held_out_, self._options)
        return self._frontier

    def determinism(self) -> Determinism | None:
        """Return the cost of a deterministic rule: how much higher the utility of the best mixture is on the same rows.

        Each call searches again. The result is None if the model was left unchanged, with ``confidence``, and with
        ``randomize=True``.

        Returns
        -------
        Determinism or None
        """
        check_is_fitted(self, "rule_")
        return None if isinstance(self.rule_, Mixture) else determinism(self.rule_, self.held_out_, self._options)

    def with_tolerance(self, tolerance: float) -> Self:
        """Return a new fitted classifier with another tolerance. No model is trained, and this classifier is unchanged.

        Parameters
        ----------
        tolerance : float
            The largest allowed difference of rates.

        Notes
        -----
        With ``confidence``, the same reserved rows certify again. The guarantee then holds for each tolerance that
        was fixed in advance, not for one that is chosen after seeing the others' results, so a warning is given.
        """
        check_is_fitted(self, "held_out_")
        if self._certifying is not None:
            warnings.warn(
                "This tolerance is tested on the same reserved rows as the first: the confidence holds for each"
                " alone, not for the one that looks best. To choose among several, fit again on new rows.",
                EvenhandWarning,
                stacklevel=2,
            )
        other: Self = clone(self).set_params(tolerance=check_tolerance(tolerance))
        own = self.get_params(deep=False)
        other.__dict__.update({name: value for name, value in vars(self).items() if name not in own})
        other.rule_ = other._learn()
        return other

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: what this estimator requests, and what it passes to its models.

        By default, ``fit`` and ``score`` request ``sensitive_features``. ``sample_weight`` is passed to the models that
        request it.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        for name, model in self._routed_models().items():
            router.add(method_mapping=mapping, **{name: model})
        return router

    def _routed_models(self) -> dict[str, Any]:
        models = {"estimator": self.estimator}
        if isinstance(self.auxiliary, Mapping):
            shown = display_names(map(attribute_key, self.auxiliary))
            models |= {f"auxiliary[{shown[attribute_key(key)]}]": model for key, model in self.auxiliary.items()}
        elif self.auxiliary is not None and not self._joint:
            models["auxiliary"] = self.auxiliary
        return models

    def _repr_html_inner(self) -> str:
        diagram: str = super()._repr_html_inner()
        if not hasattr(self, "rule_"):
            return diagram
        rule = self.rule_
        asked = f"{type(rule.criterion).__name__} to within {self.tolerance:g}, on {len(self.held_out_):,} rows"
        result = [] if rule.solution is None else [rule.solution.sentence]
        return diagram + Description(f"Fair rule: {asked}.", result).html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        return {**bundle, "text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags = copy.deepcopy(get_tags(self.estimator).input_tags)
        tags.input_tags.pairwise = False
        return tags
