"""Attributes, events and rates: which decisions are counted, and among which rows.

A rate is a share of some rows among others, within a group. Most are shares of positive decisions, among all rows or
the rows of one label. Precision, negative predictive value and accuracy are the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from evenhand.arguments import check_label, is_whole, shown
from evenhand.errors import InputError

# The smallest number of rows for counting a rate.
FEWEST_ROWS = 2
Kind = Literal["selection", "precision", "npv", "accuracy"]


class RateOf(NamedTuple):
    """A rate as ``constant + sign * P(...)``: its kind, and the label of the rows it is counted among."""

    kind: Kind
    label: int | None
    sign: float
    constant: float


RATES: dict[str, RateOf] = {
    "selection": RateOf("selection", None, 1.0, 0.0),
    "selection_rate": RateOf("selection", None, 1.0, 0.0),
    "tpr": RateOf("selection", 1, 1.0, 0.0),
    "fpr": RateOf("selection", 0, 1.0, 0.0),
    "tnr": RateOf("selection", 0, -1.0, 1.0),
    "fnr": RateOf("selection", 1, -1.0, 1.0),
    "precision": RateOf("precision", None, 1.0, 0.0),
    "fdr": RateOf("precision", None, -1.0, 1.0),
    "npv": RateOf("npv", None, 1.0, 0.0),
    "for": RateOf("npv", None, -1.0, 1.0),
    "accuracy": RateOf("accuracy", None, 1.0, 0.0),
    "error": RateOf("accuracy", None, -1.0, 1.0),
}


@dataclass(frozen=True)
class Intersection:
    """A crossed attribute: its groups are the combinations of the named attributes' groups that occur.

    Parameters
    ----------
    *attributes : str
        Two or more attribute names.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.DemographicParity(attribute=eh.Intersection("sex", "race")).attribute.name
    'sex & race'
    """

    attributes: tuple[str, ...]

    def __init__(self, *attributes: str) -> None:
        named = all((isinstance(name, str) and name) or is_whole(name) for name in attributes)
        if not named or len(attributes) < 2 or len(set(attributes)) != len(attributes):
            raise InputError(
                f"Intersection needs two or more different attribute names; got {shown(list(attributes))}."
            )
        object.__setattr__(self, "attributes", tuple(str(name) for name in attributes))

    @property
    def name(self) -> str:
        """A text for the crossed attribute. It is not unique: a column may have the same name."""
        return " & ".join(self.attributes)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Intersection({', '.join(map(repr, self.attributes))})"


@dataclass(frozen=True, repr=False)
class OtherStrata:
    """Stands for every value of a column of strata that is not compared: thin, unknown or new."""

    def __repr__(self) -> str:
        return "(not compared)"


OTHER = OtherStrata()


def is_other(stratum: Hashable) -> bool:
    """Return whether a stratum, or a part of a combination, stands for those that are not compared."""
    return stratum == OTHER or (isinstance(stratum, tuple) and OTHER in stratum)


@dataclass(frozen=True)
class Stratified:
    """An attribute inside each stratum of a column: its groups are the pairs (stratum, group) that are compared.

    A row's stratum is known when it is decided. So p(s, a | x) is p(a | x) in the row's own stratum, and 0 elsewhere.

    Attributes
    ----------
    attribute : str or Intersection
        The attribute whose groups are compared.
    within : str
        The column of the strata.
    thin : int or None
        A stratum in which a compared cell has fewer rows than this is left to the model's own decisions, as are rows
        whose stratum is unknown or new. None raises an error instead.
    crossed : tuple of str
        If the strata are the combinations of several columns' values: these columns, and ``within`` is a text for all
        of them. Only mixtures have such strata, and only they have rules in :data:`OTHER`.
    """

    attribute: str | Intersection
    within: str
    thin: int | None = None
    crossed: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the strata."""
        return self.crossed or (self.within,)

    def by_column(self, stratum: Hashable) -> dict[str, Hashable]:
        """Return the value of each column in a stratum."""
        values = stratum if self.crossed else (stratum,)
        assert isinstance(values, tuple)
        return dict(zip(self.columns, values, strict=True))

    @property
    def name(self) -> str:
        """A text for the attribute and its strata."""
        return f"{self.attribute} within {self.within}"

    def __str__(self) -> str:
        return self.name


AttributeKey = str | Intersection | Stratified


def base_of(key: AttributeKey) -> str | Intersection:
    """Return the attribute whose groups are compared, within strata or not."""
    return key.attribute if isinstance(key, Stratified) else key


Groups = Mapping[AttributeKey, tuple[Hashable, ...]]


def display_names(attributes: Iterable[AttributeKey]) -> dict[AttributeKey, str]:
    """Return a unique text for each attribute.

    A column has its name. A crossed attribute has the names of its parts, followed by "(crossed)" if a column or
    another crossed attribute has the same text.

    Examples
    --------
    >>> from evenhand.rules.events import Intersection, display_names
    >>> list(display_names(["sex", "race", "sex & race", Intersection("sex", "race")]).values())
    ['sex', 'race', 'sex & race', 'sex & race (crossed)']
    """
    keys = list(dict.fromkeys(attributes))
    shown: dict[AttributeKey, str] = {key: key for key in keys if isinstance(key, str)}
    for key in keys:
        if not isinstance(key, str):
            text, more = key.name, f" (thin={key.thin})" if isinstance(key, Stratified) else " (crossed)"
            while text in shown.values():
                text += more
            shown[key] = text
    return {key: shown[key] for key in keys}


@dataclass(frozen=True)
class Event:
    """A part of the population, and what is counted there.

    Parameters
    ----------
    attribute : str, Intersection or None, default=None
        The attribute; None means everyone.
    group : label, default=None
        The group.
    label : {0, 1} or None, default=None
        Only rows with this label: 1 is the positive one.
    kind : {"selection", "precision", "npv", "accuracy"}, default="selection"
        What is counted: positive decisions, positive labels among the positive decisions, negative labels among the
        negative decisions, or correct decisions.

    Examples
    --------
    >>> from evenhand import Event
    >>> str(Event(attribute="sex", group="F", label=1))
    'sex=F, Y=1'
    """

    attribute: AttributeKey | None = None
    group: Hashable = None
    label: int | None = None
    kind: Kind = "selection"

    def __str__(self) -> str:
        return self.text(
            "" if self.attribute is None else _inside(self.attribute, self.group, str(self.attribute), str)
        )

    def text(self, inside: str) -> str:
        """Return the event in words, given the text for its group."""
        parts = [] if self.attribute is None else [inside]
        parts += [] if self.label is None else [f"Y={self.label}"]
        return ", ".join(parts) or "everyone"

    def __post_init__(self) -> None:
        known = isinstance(self.kind, str) and self.kind in ("selection", "precision", "npv", "accuracy")
        if not known or not (self.label is None or (is_whole(self.label) and self.label in (0, 1))):
            raise InputError(
                f"kind must be selection, precision, npv or accuracy, and label 0, 1 or None; got"
                f" {shown(self.kind)}, {shown(self.label)}."
            )
        if self.kind != "selection" and self.label is not None:
            raise InputError(f"{self.kind} counts rows of both labels: leave label=None.")
        if not isinstance(self.attribute, AttributeKey | None):
            raise InputError(f"attribute must be a name, an Intersection or None; got {shown(self.attribute)}.")
        if isinstance(self.attribute, Stratified) and not (isinstance(self.group, tuple) and len(self.group) == 2):
            raise InputError(f"A group within a stratum must be a pair (stratum, group); got {shown(self.group)}.")
        if self.attribute is not None:
            check_label(self.group, "The group of an event")

    @property
    def needs_label(self) -> bool:
        """Whether labels are needed to count it."""
        return self.label is not None or self.kind != "selection"

    @property
    def stratum(self) -> tuple[str, Hashable] | None:
        """The column and the value of its stratum; None if it is not restricted to one."""
        if not isinstance(self.attribute, Stratified):
            return None
        assert isinstance(self.group, tuple)
        return self.attribute.within, self.group[0]

    @property
    def by_label(self) -> tuple[Event, Event]:
        """The events of the rows of each label in this group, whose decisions are counted."""
        return Event(self.attribute, self.group, 0), Event(self.attribute, self.group, 1)


def _inside(attribute: AttributeKey, group: Hashable, text: str, spell: Callable[[Any], str]) -> str:
    """Return a group, and its stratum if it has one, in words."""
    if not isinstance(attribute, Stratified):
        return f"{text}={spell(group)}"
    assert isinstance(group, tuple)
    return f"{attribute.attribute}={spell(group[1])}, {_columns_text(attribute.by_column(group[0]), spell)}"


def _columns_text(values: Mapping[str, Hashable], spell: Callable[[Any], str]) -> str:
    return ", ".join(f"{column}={spell(value)}" for column, value in values.items())


def event_names(events: Iterable[Event], groups: Groups) -> dict[Event, str]:
    """Return a unique text for each event, given the attributes in the data."""
    shown = display_names(groups)
    inside = {}
    for name, members in groups.items():
        pairs = isinstance(name, Stratified)
        texts = {tuple(map(str, g)) if pairs and isinstance(g, tuple) else str(g) for g in members}
        alike = len(texts) < len(members)
        for group in members:
            inside[name, group] = _inside(name, group, shown[name], repr if alike else str)
    return {e: str(e) if e.attribute is None else e.text(inside[e.attribute, e.group]) for e in events}


def strata_texts(strata: Iterable[Mapping[str, Hashable]]) -> list[str]:
    """Return each stratum in words, from its value in each column; with Python's repr if two texts would be equal.

    Examples
    --------
    >>> from evenhand.rules.events import strata_texts
    >>> strata_texts([{"floor": 1}, {"floor": 2}]), strata_texts([{"floor": 1}, {"floor": "1"}])
    (['floor=1', 'floor=2'], ['floor=1', "floor='1'"])
    """
    listed = list(strata)
    texts = [_columns_text(each, str) for each in listed]
    return texts if len(set(texts)) == len(texts) else [_columns_text(each, repr) for each in listed]


def event_to_dict(event: Event, coefficient: float) -> dict[str, Any]:
    """Return a term of a sum of rates as plain data, for JSON."""
    name = event.attribute
    return {
        "attribute": {"intersection": list(name.attributes)} if isinstance(name, Intersection) else name,
        "group": list(event.group) if isinstance(event.group, tuple) else event.group,
        "label": event.label,
        "kind": event.kind,
        "coefficient": coefficient,
    }


def event_from_dict(data: Any) -> tuple[Event, float]:
    """Return the term that :func:`event_to_dict` wrote; any other value raises InputError."""
    if not isinstance(data, Mapping) or data.keys() != {"attribute", "group", "label", "kind", "coefficient"}:
        raise InputError("This is not a term of a LinearConstraint.")
    attribute, group = data["attribute"], data["group"]
    if isinstance(attribute, Mapping):
        attribute = Intersection(*attribute.get("intersection", ()))
    group = tuple(group) if isinstance(group, list) else group
    return Event(attribute, group, data["label"], data["kind"]), data["coefficient"]
