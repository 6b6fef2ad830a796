"""The array-level entry point: probabilities, labels and groups in, a fair rule out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from numpy.typing import ArrayLike

from evenhand.arguments import Seed, check_flag
from evenhand.errors import InputError
from evenhand.inputs import GroupProbabilities, Missing, SensitiveFeatures
from evenhand.rows import read_rows
from evenhand.rules.confidence import check_unweighted, learn_with_confidence
from evenhand.rules.criteria import Criterion, check_tolerance, resolve
from evenhand.rules.evidence import EvidenceName
from evenhand.rules.ladder import best_rule
from evenhand.rules.mixed_confidence import learn_mixture_with_confidence
from evenhand.rules.mixing import best_mixture, check_lots
from evenhand.rules.mixture import Mixture
from evenhand.rules.rule import Rule
from evenhand.rules.scores import read_costs
from evenhand.rules.setting import Options
from evenhand.search import Search


def learn_rule(
    y: ArrayLike | None,
    sensitive_features: SensitiveFeatures | None,
    p_y: ArrayLike,
    p_group: GroupProbabilities | None,
    *,
    criterion: str | Criterion = "demographic_parity",
    tolerance: float = 0.05,
    search: str | Search = "certified",
    evidence: EvidenceName = "labels",
    safety: float = 0.0,
    confidence: float | None = None,
    objective: str = "accuracy",
    randomize: bool = False,
    sample_weight: ArrayLike | None = None,
    costs: Any = None,
    pos_label: Hashable = 1,
    groups: Any = None,
    priors: Any = None,
    missing: Missing = "raise",
    strata: SensitiveFeatures | None = None,
    random_state: Seed = None,
) -> Rule | Mixture:
    """Learn the best decision rule that meets a fairness criterion.

    Parameters
    ----------
    y : array of shape (n,) or None
        Labels, any two values. ``None`` with ``evidence="model"``.
    sensitive_features : array, Series, frame or dict of columns, or None
        Each row's group. With several columns, each attribute must meet the criterion; to cross them, as fairlearn
        does, use :class:`evenhand.Intersection`. ``None`` with ``evidence="model"``. Rows of all arguments are matched
        by position; two pandas objects with different indexes are an error.
    p_y : array of shape (n,)
        P(Y = positive | x), from a model that was not trained on these rows. If all values are 0 or 1, a warning says
        that these look like decisions.
    p_group : array of shape (n, G) or (n, 2, G), or dict of such by attribute
        P(A = g | x), or P(Y = y, A = g | x) with axis 1 = (negative, positive). Columns follow the sorted
        groups unless ``groups`` gives the order; a frame's columns are matched by name. Columns that rank the
        groups clearly worse than chance lead to a warning. Demographic parity needs only P(A = g | x).
    criterion : str or Criterion, default="demographic_parity"
        The fairness criterion.
    tolerance : float, default=0.05
        The largest allowed difference of rates.
    search : {"certified", "directions", "lines", "dual", "smoothed"} or a search, default="certified"
        How z is found: the global optimum, the paper's Algorithms 3 and 2, the dual of its Lemma 1, or a fast search
        for many constraints that proves nothing.
    evidence : {"labels", "model", "both"}, default="labels"
        Whether rates and accuracy are counted on ``y`` and ``sensitive_features`` (the paper), expected under
        ``p_y`` and ``p_group`` (no labels and no groups needed), or the mean of the two.
    safety : float, default=0
        Tighten each bound by this number of standard errors of its value, but to no less than half of the tolerance.
        If the model already meets the bounds, it is left unchanged; see :mod:`evenhand.rules.safety`. 0 is the paper's
        rule: the best on these rows, which exceeds the tolerance on new rows about half of the time.
    confidence : float or None, default=None
        Guarantee that every constraint holds in the population with this probability; see
        :mod:`evenhand.rules.confidence`.
    objective : str, default="accuracy"
        What is maximised: "accuracy", "balanced_accuracy" (the mean of the true positive and the true negative rate),
        or an F score by its usual name, such as "f1", "f2" or "f0.5". A rule for an F score has its own threshold.
    randomize : bool, default=False
        Whether decisions may be random: the result is a :class:`evenhand.rules.mixture.Mixture` of rules that meets the
        bounds on average, often at tolerances that no single rule meets, and is at least as accurate as any single
        rule. Read the page on lotteries before you use one on people.
    sample_weight : array of shape (n,), default=None
        A weight of k counts as k copies.
    costs : (false positive, false negative) or dict, default=None
        Minimise the mean cost instead of maximising accuracy; cannot be combined with ``objective``.
    pos_label : label, default=1
        The positive label.
    groups : sequence or dict of sequences, default=None
        The groups, in the order of the columns of ``p_group``.
    priors : array or dict of arrays, default=None
        P(A = g) or P(Y = y, A = g) of the training set; ``None`` counts them on these rows.
    missing : {"raise", "ignore"}, default="raise"
        Whether rows of unknown group are an error, or count for accuracy but not for any group's rate.
    strata : array, Series, frame or dict of columns, default=None
        Each row's stratum, for a criterion with ``within``: a column of that name, or an unnamed one. The rule
        needs it again, as ``rule.decide(p_y, p_group, strata=...)``.
    random_state : int or None, default=None
        Seed of randomised searches, and of the split for ``confidence``.

    Returns
    -------
    Rule
        ``rule.solution_`` contains what the search proved. With ``randomize=True``, a Mixture.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_zafar(2000, random_state=0)
    >>> rule = eh.learn_rule(
    ...     data.y, data.group, data.p_y, data.p_joint, criterion="equalized_odds", tolerance=0.05)
    >>> rule.solution_.status
    'optimal'
    >>> decisions = rule.decide(data.p_y, data.p_joint)
    >>> eh.metrics.equalized_odds_difference(data.y, decisions, sensitive_features=data.group) <= 0.05
    True
    """
    options = Options(
        criterion=resolve(criterion),
        search=search,
        evidence=evidence,
        safety=safety,
        objective=objective,
        costs=read_costs(costs),
        priors=priors,
        missing=missing,
        random_state=random_state,
    )
    tolerance = check_tolerance(tolerance)
    if check_flag(randomize, "randomize"):
        check_lots(search, options.criterion)
    if confidence is not None:
        if y is None or sensitive_features is None:
            raise InputError("confidence tests rules on counted rows: pass y and sensitive_features.")
        check_unweighted(sample_weight)
    rows = read_rows(
        y,
        sensitive_features,
        p_y,
        p_group,
        criterion=options.criterion,
        sample_weight=sample_weight,
        pos_label=pos_label,
        groups=groups,
        missing=missing,
        counted=options.counts,
        strata=strata,
    )
    if randomize and confidence is not None:
        return learn_mixture_with_confidence(rows, options, tolerance=tolerance, confidence=confidence)
    if randomize:
        return best_mixture(rows, options, tolerance)
    if confidence is not None:
        return learn_with_confidence(rows, options, tolerance=tolerance, confidence=confidence)
    return best_rule(rows, options, tolerance)
