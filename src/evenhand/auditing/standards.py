"""Audits that regulations define: the four-fifths rule, and New York City's Local Law 144.

The tables and tests are computed as each regulation defines them. They are not legal advice: ask a lawyer whether a
regulation applies, and what follows from a table.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from evenhand.arguments import check_label, is_number, shown
from evenhand.auditing.findings import Outcome
from evenhand.auditing.standards_text import lines
from evenhand.auditing.tally import AUDITED, BoolArray, read_decided
from evenhand.errors import InputError
from evenhand.inputs import (
    Attribute,
    FloatArray,
    Missing,
    SensitiveFeatures,
    as_column,
    as_float_array,
    cross_attributes,
    read_sensitive,
)
from evenhand.rules.events import AttributeKey, Intersection, display_names

_TIE = 1e-12
_WORST_FIRST: tuple[Outcome, ...] = ("fail", "insufficient evidence", "pass")


@dataclass(frozen=True)
class Comparison:
    """A group's rate compared with another group's.

    Attributes
    ----------
    group : label
        The other group.
    ratio : float or None
        This group's rate over the other's, the impact ratio; None if the other's is 0.
    fisher : float
        The two-sided p-value of Fisher's exact test that both rates are the same.
    deviations : float or None
        The difference of the rates in standard deviations under equal rates: a value below -2 is beyond two standard
        deviations to this group's disadvantage. None if all or none were selected.
    """

    group: Hashable
    ratio: float | None
    fisher: float
    deviations: float | None


@dataclass(frozen=True)
class StandardGroup:
    """One group of a table.

    Attributes
    ----------
    group : label
        The group; a tuple for an intersection.
    rows, selected : int
        The number of rows, and how many were selected (or scored above the median).
    share : float
        The group's share of the rows whose group is known.
    rate : float
        Selected over rows.
    left_out : bool
        Whether the group is too small for a verdict and for being the highest.
    to_highest, to_reference : Comparison or None
        Comparisons with the group of the highest rate and with the reference group. None for that group itself, and
        for a group that was left out.
    mean : float or None
        The mean score, if scores were given.
    smd : float or None
        The standardised mean difference: this group's mean score minus the reference group's (else that of the
        group with the highest rate), over the standard deviation of all scores.
    outcome : {"pass", "fail", "insufficient evidence"} or None
        The standard's verdict; None if it sets no limit, or the group was left out.
    """

    group: Hashable
    rows: int
    selected: int
    share: float
    rate: float
    left_out: bool
    to_highest: Comparison | None
    to_reference: Comparison | None
    mean: float | None
    smd: float | None
    outcome: Outcome | None


@dataclass(frozen=True)
class StandardTable:
    """The table of one attribute, or of an intersection.

    Attributes
    ----------
    attribute : str
        The attribute.
    unknown_rows : int
        The number of rows of unknown group, which are not in the table.
    highest : label
        The group with the highest rate, among those that were not left out.
    reference : label or None
        The reference group, if one was named.
    groups : tuple of StandardGroup
        The groups.
    outcome : {"pass", "fail", "insufficient evidence"} or None
        The worst of the groups' outcomes; None if the standard sets no limit.
    """

    attribute: str
    unknown_rows: int
    highest: Hashable
    reference: Hashable | None
    groups: tuple[StandardGroup, ...]
    outcome: Outcome | None


@dataclass(frozen=True, repr=False)
class StandardAudit:
    """The tables of a standard. They print as text.

    Attributes
    ----------
    standard : str
        The standard's name.
    citation : str
        The regulation, with its date.
    rate : {"selection rate", "scoring rate"}
        Which rate is compared.
    rows : int
        The number of rows.
    median : float or None
        The median of all scores, if scoring rates are compared.
    least_share : float
        Groups below this share of the rows are left out of the verdict.
    tables : tuple of StandardTable
        One for each attribute, and for their intersection if the standard requires it.
    notes : tuple of str
        Notes for the reader.
    """

    standard: str
    citation: str
    rate: str
    rows: int
    median: float | None
    least_share: float
    tables: tuple[StandardTable, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool | None:
        """Whether every table passes; None if the standard sets no limit."""
        outcomes = [table.outcome for table in self.tables if table.outcome is not None]
        return all(outcome == "pass" for outcome in outcomes) if outcomes else None

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data for JSON; keys are the attributes of these classes."""
        found: dict[str, Any] = _plain(self)
        return found

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__


def _plain(value: Any, name: str = "") -> Any:
    """Return data for JSON; a group that is not text, a number or a truth value is written as its text."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name), field.name) for field in fields(value)}
    if name in ("tables", "groups", "notes"):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


@dataclass(frozen=True, kw_only=True)
class Standard:
    """The base class of standards.

    Parameters
    ----------
    reference : group, or dict of groups by attribute, default=None
        A group that every other is compared with, besides the one with the highest rate.
    least_share : float, default=0.02
        Groups below this share of the rows of known group are left out of the verdict, and listed.
    """

    reference: Hashable | Mapping[str, Hashable] = None
    least_share: float = 0.02

    name: ClassVar[str] = ""
    citation: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not (is_number(self.least_share) and 0.0 <= self.least_share < 1.0):
            raise InputError(f"least_share must be a share, from 0 to below 1; got {shown(self.least_share)}.")
        if not isinstance(self.reference, Mapping):
            check_label(self.reference, "reference")

    def reference_of(self, attribute: AttributeKey, groups: tuple[Hashable, ...]) -> Hashable | None:
        """Return the reference group of an attribute, or None if none was named."""
        named = self.reference
        if isinstance(named, Mapping):
            named = named.get(str(attribute))
        elif named not in groups:
            # With several attributes, a single name belongs to the attribute that has this group.
            return None
        if named is not None and named not in groups:
            raise InputError(f"reference {shown(named)} is not a group of {str(attribute)!r}: {list(groups)[:12]!r}.")
        return named


@dataclass(frozen=True, kw_only=True)
class FourFifths(Standard):
    """The four-fifths rule of the Uniform Guidelines on Employee Selection Procedures, with tests of significance.

    A selection rate below four fifths of the highest group's is generally regarded as evidence of adverse impact
    (29 CFR 1607.4(D)). Differences that rest on small numbers and are not statistically significant may not be:
    such a group has the outcome "insufficient evidence". "fail" needs a ratio below 0.8 and a p-value of Fisher's exact
    test below ``1 - confidence``. The number of standard deviations, which courts use, is also shown.

    Parameters
    ----------
    reference : group, or dict of groups by attribute, default=None
        A group that every other is compared with, besides the one with the highest rate. The verdict is on the ratio to
        the highest rate.
    least_share : float, default=0.02
        Groups below this share are left out of the verdict, and listed.

    Examples
    --------
    >>> import evenhand as eh
    >>> from evenhand.auditing.standards import FourFifths
    >>> decisions = [1] * 48 + [0] * 32 + [1] * 12 + [0] * 28
    >>> found = eh.audit(None, decisions, ["A"] * 80 + ["B"] * 40, standard=FourFifths(reference="A"))
    >>> found.tables[0].groups[1].to_highest.ratio, found.tables[0].outcome
    (0.5, 'fail')
    """

    name: ClassVar[str] = "four-fifths"
    citation: ClassVar[str] = (
        "Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4(D) (43 FR 38290, August 25, 1978); two"
        " standard deviations: Castaneda v. Partida, 430 U.S. 482, 496 n.17 (1977), and Hazelwood School District v."
        " United States, 433 U.S. 299, 308 n.14 (1977)"
    )


@dataclass(frozen=True, kw_only=True)
class NYC144(Standard):
    """The tables of a bias audit under New York City's Local Law 144 of 2021, as 6 RCNY 5-300 and 5-301 define them.

    For a tool that selects: selection rates and impact ratios, the rate of a category over that of the most selected
    one. For a tool that scores: scoring rates, the share of a category whose score is above the median of the whole
    sample, and impact ratios to the highest of them. The tables are by sex, by race or ethnicity, and by their
    intersection, with the number of people of unknown category. The regulation sets no limit for the ratio, so there is
    no verdict.

    Parameters
    ----------
    reference : group, or dict of groups by attribute, default=None
        As in FourFifths. The regulation does not require it.
    least_share : float, default=0.02
        Categories below this share may be left out of the impact ratios (5-301(d)); their counts and rates are shown.
    """

    name: ClassVar[str] = "nyc-144"
    citation: ClassVar[str] = (
        "New York City Local Law 144 of 2021 (Administrative Code 20-870 to 20-874) and 6 RCNY 5-300 to 5-304, final"
        " rule of April 6, 2023, enforced since July 5, 2023"
    )


STANDARDS: dict[str, type[Standard]] = {cls.name: cls for cls in (FourFifths, NYC144)}


def resolve_standard(standard: str | Standard) -> Standard:
    """Return the standard that a string names; a standard object is returned unchanged."""
    if isinstance(standard, Standard) and standard.name:
        return standard
    if isinstance(standard, str) and standard in STANDARDS:
        return STANDARDS[standard]()
    raise InputError(f"Unknown standard {shown(standard)}: use one of {list(STANDARDS)!r}, or a standard object.")


def audit_by_standard(
    y: Any,
    decisions_or_scores: Any,
    sensitive_features: SensitiveFeatures | None,
    standard: str | Standard,
    *,
    confidence: float = 0.95,
    threshold: float = 0.5,
    pos_label: Hashable = 1,
    missing: Missing = "raise",
) -> StandardAudit:
    """Compute the tables of a standard; see :func:`evenhand.audit`."""
    wanted = resolve_standard(standard)
    scoring = isinstance(wanted, NYC144)
    scores = _read_scores(y, decisions_or_scores)
    median = None
    if scores is not None and scoring:
        median = float(np.median(scores))
        selected = scores > median
    else:
        selected = read_decided(y, decisions_or_scores, threshold, pos_label)[1]
    # Local Law 144 requires the number of people of unknown category.
    attributes = read_sensitive(sensitive_features, len(selected), missing="ignore" if scoring else missing)
    notes = ["This is not legal advice."]
    if scoring:
        attributes = _crossed(attributes)
        notes.append("Local Law 144 sets no limit for the impact ratio, so there is no verdict.")
        if len(attributes) < 3:
            notes.append(
                "The regulation requires tables by sex, by race or ethnicity, and by both crossed: pass both columns."
            )
    _check_reference(wanted, attributes)
    names = display_names(attributes)
    level = None if scoring else 1.0 - confidence
    tables = tuple(_table(wanted, names[key], found, selected, scores, level) for key, found in attributes.items())
    return StandardAudit(
        standard=wanted.name,
        citation=wanted.citation,
        rate="selection rate" if median is None else "scoring rate",
        rows=len(selected),
        median=median,
        least_share=float(wanted.least_share),
        tables=tables,
        notes=tuple(notes),
    )


def _read_scores(y: Any, given: Any) -> FloatArray | None:
    """Return scores of any range, or None where what is given are decisions."""
    column = as_column(given, AUDITED[1])
    if column.dtype == object and len(column) and all(is_number(item) for item in column):
        column = column.astype(np.float64)
    if column.dtype.kind not in "iuf" or len(set(column[:1000].tolist())) <= 2 >= len(set(column.tolist())):
        return None
    scores = as_float_array(column, AUDITED[1])
    if not np.isfinite(scores).all():
        raise InputError(f"{AUDITED[1]} has a score that is not a number in row {int(np.argmin(np.isfinite(scores)))}.")
    return scores


def _crossed(attributes: dict[AttributeKey, Attribute]) -> dict[AttributeKey, Attribute]:
    if len(attributes) > 2:
        raise InputError(
            f"nyc-144 takes two columns, sex and race or ethnicity; got {len(attributes)}:"
            f" {list(map(str, attributes))!r}."
        )
    if len(attributes) < 2:
        return attributes
    both = Intersection(*(str(name) for name in attributes))
    return {**attributes, both: cross_attributes(attributes, both)}


def _check_reference(standard: Standard, attributes: Mapping[AttributeKey, Attribute]) -> None:
    """Raise if a reference group or its attribute does not exist."""
    named = standard.reference
    if isinstance(named, Mapping):
        if stray := [name for name in named if name not in map(str, attributes)]:
            known = list(map(str, attributes))
            raise InputError(f"reference names the attribute {shown(stray[0])}; there are {known!r}.")
    elif named is not None and not any(named in found.groups for found in attributes.values()):
        groups = [group for found in attributes.values() for group in found.groups]
        raise InputError(f"reference {shown(named)} is not one of the groups {groups[:12]!r}.")


def _table(
    standard: Standard,
    name: str,
    attribute: Attribute,
    selected: BoolArray,
    scores: FloatArray | None,
    level: float | None,
) -> StandardTable:
    known = attribute.codes >= 0
    codes, size = attribute.codes[known], len(attribute.groups)
    rows = np.bincount(codes, minlength=size)
    hits = np.bincount(codes[selected[known]], minlength=size)
    rates = hits / np.maximum(rows, 1)
    left_out = rows < standard.least_share * rows.sum()
    if left_out.all():
        raise InputError(
            f"Every group of {name!r} has less than {standard.least_share:g} of the rows: give a smaller least_share."
        )
    highest = int(np.argmax(np.where(left_out, -1.0, rates)))
    reference = standard.reference_of(attribute.name, attribute.groups)
    place = None if reference is None else attribute.groups.index(reference)
    means = None if scores is None else np.bincount(codes, scores[known], size) / np.maximum(rows, 1)
    spread = None if scores is None else float(np.std(scores[known], ddof=1)) if known.sum() > 1 else 0.0
    groups = []
    for k, group in enumerate(attribute.groups):
        to_highest, to_reference = (
            None if left_out[k] or other in (None, k) else _compare(attribute.groups[other], rows, hits, k, other)
            for other in (highest, place)
        )
        mean = None if means is None else float(means[k])
        base = None if means is None else float(means[highest if place is None else place])
        groups.append(
            StandardGroup(
                group=group,
                rows=int(rows[k]),
                selected=int(hits[k]),
                share=float(rows[k] / rows.sum()),
                rate=float(rates[k]),
                left_out=bool(left_out[k]),
                to_highest=to_highest,
                to_reference=to_reference,
                mean=mean,
                smd=None if mean is None or base is None or not spread else (mean - base) / spread,
                outcome=None if level is None or left_out[k] else _judge(to_highest, level),
            )
        )
    outcomes = {group.outcome for group in groups}
    worst = next((outcome for outcome in _WORST_FIRST if outcome in outcomes), None)
    unknown = int((~known).sum())
    return StandardTable(name, unknown, attribute.groups[highest], reference, tuple(groups), worst)


def _compare(group: Hashable, rows: Any, hits: Any, one: int, other: int) -> Comparison:
    """Compare two groups: the ratio of their rates, and two tests that they are the same."""
    (a, n), (b, m) = ((int(hits[k]), int(rows[k])) for k in (one, other))
    p = (a + b) / (n + m)
    error = math.sqrt(p * (1.0 - p) * (1.0 / n + 1.0 / m)) if n and m else 0.0
    return Comparison(
        group=group,
        ratio=(a / n) / (b / m) if n and b else None,
        fisher=float(stats.fisher_exact(np.array([[a, n - a], [b, m - b]])).pvalue),
        deviations=(a / n - b / m) / error if error > 0.0 else None,
    )


def _judge(found: Comparison | None, level: float) -> Outcome:
    """Return the four-fifths outcome of a comparison with the highest group; that group itself passes."""
    if found is None or found.ratio is None or found.ratio >= 0.8 - _TIE:
        return "pass"
    return "fail" if found.fisher <= level else "insufficient evidence"
