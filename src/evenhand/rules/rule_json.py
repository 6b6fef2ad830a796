"""Rules as JSON: readable, exact, and fully checked when read."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from evenhand.errors import InputError, RuleFormatError
from evenhand.rules import criteria
from evenhand.rules.events import (
    FEWEST_ROWS,
    OTHER,
    AttributeKey,
    Event,
    Intersection,
    Stratified,
    base_of,
    display_names,
    is_other,
)
from evenhand.search.problem import Solution, Status

if TYPE_CHECKING:
    from evenhand.rules.rule import Rule, Term

FORMAT = "evenhand-rule"
MIXTURE_FORMAT = "evenhand-mixture"
VERSION = 5
LARGEST = 10_000_000
# Version 2 has "crossed": the parts of each crossed attribute. Version 3 has the requested and the used bounds of a
# solution. Version 4 has "within": which attributes are compared within which strata. Version 5 has OTHER among the
# strata, which stands for those that are not compared. A rule is written in the earliest version that can represent it.
_FIELDS = {
    "format",
    "version",
    "decision",
    "labels",
    "costs",
    "groups",
    "events",
    "terms",
    "criterion",
    "tolerance",
    "learned_from",
    "solution",
}
_DECISION = (
    "positive iff false_negative * p - false_positive * (1 - p) - sum over events of weight * p(event | x) / prior > 0"
)
# The search's time and machine are not part of the rule.
_NOT_WRITTEN = {"seconds", "stopped", "expected_optimum", "prove"}
_BOUNDS = ("asked", "used")
_OTHER = {"other": True}


def write(rule: Rule) -> str:
    """Return the rule as JSON text."""
    shown = display_names(rule.groups)
    crossed = {text: list(name.attributes) for name, text in shown.items() if isinstance(name, Intersection)}
    within = {
        text: {"attribute": shown[name.attribute], "column": name.within, "thin": name.thin}
        | ({"columns": list(name.crossed)} if name.crossed else {})
        for name, text in shown.items()
        if isinstance(name, Stratified)
    }
    data = {
        "format": FORMAT,
        "version": _version(rule),
        "decision": _DECISION,
        "labels": {"negative": _encode(rule.classes[0]), "positive": _encode(rule.classes[1])},
        "costs": {"false_positive": rule.costs[0], "false_negative": rule.costs[1]},
        "groups": {shown[name]: [_encode(group) for group in members] for name, members in rule.groups.items()},
        **({"crossed": crossed} if crossed else {}),
        **({"within": within} if within else {}),
        "events": [
            {
                "attribute": None if event.attribute is None else shown[event.attribute],
                "group": None if event.attribute is None else _encode(event.group),
                "label": event.label,
                "prior": prior,
                "weight": float(weight),
            }
            for event, prior, weight in zip(rule.events, rule.priors, rule.event_weights, strict=True)
        ],
        "terms": [{"name": t.name, "z": t.z, "coefficients": list(t.coefficients)} for t in rule.terms],
        "criterion": None if rule.criterion is None else rule.criterion.to_dict(),
        "tolerance": rule.tolerance,
        "learned_from": dict(rule.learned_from),
        "solution": None if rule.solution is None else solution_to_dict(rule.solution),
    }
    return dump(data)


def dump(data: Mapping[str, Any]) -> str:
    """Return the JSON text of a rule or a mixture; raise if it could not be read again."""
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    if len(text) > LARGEST:
        raise InputError(
            f"The rule's JSON has {len(text):,} characters, and at most {LARGEST:,} can be read: use fewer strata, or"
            " one column of them."
        )
    return text


def _version(rule: Rule) -> int:
    """Return the earliest version that can represent a rule."""
    inside = [pair for key, pairs in rule.groups.items() if isinstance(key, Stratified) for pair in pairs]
    if inside:
        return 5 if any(isinstance(pair, tuple) and is_other(pair[0]) for pair in inside) else 4
    if rule.solution is not None and rule.solution.used is not None:
        return 3
    return 2 if any(isinstance(name, Intersection) for name in rule.groups) else 1


def read(text: str, make_rule: type[Rule], make_term: type[Term]) -> Rule:
    """Return the rule that a JSON text describes, or raise :class:`RuleFormatError`."""
    data = load(text)
    if data.get("format") == MIXTURE_FORMAT:
        raise RuleFormatError("This JSON is a randomized mixture of rules: read it with Mixture.from_json.")
    if data.get("format") != FORMAT:
        raise RuleFormatError(f'This JSON is not an evenhand rule: "format": "{FORMAT}" is missing.')
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RuleFormatError(f"The rule's version is {version!r}; it must be a whole number.")
    if version > VERSION:
        raise RuleFormatError(
            f"The rule has version {version}, but this evenhand reads versions up to {VERSION}: update evenhand."
        )
    try:
        return _build(data, make_rule, make_term)
    except RuleFormatError:
        raise
    except (InputError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise RuleFormatError(f"The rule cannot be read: {reason}") from None


def load(text: str) -> Mapping[str, Any]:
    """Return the JSON object in a text; repeated keys, constants such as NaN and anything else raise."""
    if not isinstance(text, str):
        raise RuleFormatError(f"A rule is read from a text; got {type(text).__name__}.")
    if len(text) > LARGEST:
        raise RuleFormatError(
            f"This text has {len(text)} characters, but a rule has at most {LARGEST}: it is not a rule."
        )
    try:
        data = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
    except RuleFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise RuleFormatError(f"This is not JSON, or was cut off: {error}.") from None
    if not isinstance(data, Mapping):
        raise RuleFormatError("This JSON is not an evenhand rule: it is not an object.")
    return data


def _build(data: Mapping[str, Any], make_rule: type[Rule], make_term: type[Term]) -> Rule:
    later = {"crossed", "within"} if data["version"] > 3 else {"crossed"} if data["version"] > 1 else set()
    if stray := sorted(data.keys() - _FIELDS - later):
        raise RuleFormatError(f"The rule has the unknown field {stray[0]!r}.")
    if absent := sorted(_FIELDS - data.keys()):
        raise RuleFormatError(f"The rule lacks the field {absent[0]!r}.")
    for name in ("labels", "costs", "groups", "learned_from"):
        if not isinstance(data[name], Mapping):
            raise RuleFormatError(f"The rule's {name!r} must be an object.")
    for name in ("events", "terms"):
        if not isinstance(data[name], list) or not all(isinstance(entry, Mapping) for entry in data[name]):
            raise RuleFormatError(f"The rule's {name!r} must be a list of objects.")
    for name, members in data["groups"].items():
        if not isinstance(members, list):
            raise RuleFormatError(f"The rule's groups of {name!r} must be a list.")
    criterion = None if data["criterion"] is None else criteria.from_dict(data["criterion"])
    keys = _keys(data, criterion)
    events = tuple(
        Event(
            _key(entry["attribute"], keys),
            None if entry["attribute"] is None else _decode(entry["group"]),
            _label(entry["label"]),
        )
        for entry in data["events"]
    )
    terms = tuple(
        make_term(str(entry["name"]), tuple(_number(c) for c in entry["coefficients"]), _number(entry["z"]))
        for entry in data["terms"]
    )
    rule = make_rule(
        groups={keys[name]: tuple(_decode(group) for group in members) for name, members in data["groups"].items()},
        events=events,
        priors=tuple(_number(entry["prior"]) for entry in data["events"]),
        terms=terms,
        classes=(_decode(data["labels"]["negative"]), _decode(data["labels"]["positive"])),
        costs=(_number(data["costs"]["false_positive"]), _number(data["costs"]["false_negative"])),
        criterion=criterion,
        tolerance=None if data["tolerance"] is None else _number(data["tolerance"]),
        learned_from=dict(data["learned_from"]),
        solution=None if data["solution"] is None else solution_from_dict(data["solution"]),
    )
    for members in rule.groups.values():
        if len(set(members)) != len(members):
            raise RuleFormatError(f"The rule repeats a group: {list(members)!r}.")
    written = [_number(entry["weight"]) for entry in data["events"]]
    if written != [float(weight) for weight in rule.event_weights]:
        raise RuleFormatError("The rule is inconsistent: its events' weights do not match its terms.")
    if rule.solution is not None and rule.solution.z != tuple(term.z for term in terms):
        raise RuleFormatError("The rule is inconsistent: its solution's z does not match its terms.")
    return rule


def solution_to_dict(solution: Solution) -> dict[str, Any]:
    """Return a solution as plain data."""
    names = (f.name for f in dataclasses.fields(solution) if f.name not in _NOT_WRITTEN)
    data = {name: getattr(solution, name) for name in names}
    data["upper_bound"] = _finite(solution.upper_bound)
    for name in _BOUNDS:
        pairs = data.pop(name)
        if pairs is not None:
            data[name] = [[_finite(lower), _finite(upper)] for lower, upper in pairs]
    return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bounds_from(pairs: Any) -> tuple[tuple[float, float], ...] | None:
    if pairs is None:
        return None
    return tuple(
        (-math.inf if lower is None else _number(lower), math.inf if upper is None else _number(upper))
        for lower, upper in pairs
    )


def solution_from_dict(data: Any) -> Solution:
    """Return the solution that :func:`solution_to_dict` wrote, or raise :class:`RuleFormatError`."""
    fields = {f.name for f in dataclasses.fields(Solution)} - _NOT_WRITTEN
    if not isinstance(data, Mapping) or set(data) not in (fields, fields - set(_BOUNDS)):
        raise RuleFormatError("The rule's solution does not have the fields of a solution.")
    if not isinstance(data["status"], str) or not isinstance(data["nodes"], int):
        raise RuleFormatError("The rule's solution has a field of the wrong type.")
    return Solution(
        z=tuple(_number(value) for value in data["z"]),
        utility=_number(data["utility"]),
        values=tuple(_number(value) for value in data["values"]),
        upper_bound=math.inf if data["upper_bound"] is None else _number(data["upper_bound"]),
        status=cast(Status, data["status"]),  # a user-defined search may use another status
        nodes=data["nodes"],
        asked=_bounds_from(data.get("asked")),
        used=_bounds_from(data.get("used")),
    )


def _encode(value: Hashable) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return {"tuple": [_encode(part) for part in value]}
    if value == OTHER:
        return dict(_OTHER)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"The group or label {value!r} cannot be written to JSON.")
    if isinstance(value, str | bool | int | float):
        return value
    raise InputError(
        f"The group or label {value!r} is a {type(value).__name__}, which JSON cannot represent: use text or numbers."
    )


def _decode(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        if set(value) != {"tuple"} or not isinstance(value["tuple"], list):
            raise RuleFormatError("A group must be text, a number, a boolean or a tuple of those.")
        return tuple(OTHER if _is_other(part) else _decode(part) for part in value["tuple"])
    if isinstance(value, str | bool | int | float):
        return value
    raise RuleFormatError(f"A group or label must be text, a number or a boolean; got {value!r}.")


def _is_other(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == _OTHER.keys() and value["other"] is True


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RuleFormatError(f"The rule has {value!r} where a number is needed.")
    return float(value)


def _label(value: Any) -> int | None:
    if value is None or (type(value) is int and value in (0, 1)):
        return value
    raise RuleFormatError(f"An event's label must be 0, 1 or null; got {value!r}.")


def _keys(data: Mapping[str, Any], criterion: criteria.Criterion | None) -> dict[str, AttributeKey]:
    """Return the attribute that each text in a rule stands for.

    Version 1 does not list crossed attributes: they are those of its criterion.
    """
    if data["version"] > 1:
        listed = data.get("crossed", {})
        if not isinstance(listed, Mapping) or not all(isinstance(parts, list) for parts in listed.values()):
            raise RuleFormatError("The rule's 'crossed' must be an object of lists.")
        if stray := sorted(listed.keys() - data["groups"].keys()):
            raise RuleFormatError(f"The rule's crossed attribute {stray[0]!r} has no groups.")
        if not all(isinstance(name, str) for parts in listed.values() for name in parts):
            raise RuleFormatError("The rule's crossed attributes must be made of names.")
        crossed = {text: Intersection(*parts) for text, parts in listed.items()}
    else:
        crossed = {} if criterion is None else {key.name: key for key in criterion.intersections}
    keys: dict[str, AttributeKey] = {text: crossed.get(text, text) for text in data["groups"]}
    keys |= _stratified_keys(data, keys)
    inside = {column for key in keys.values() if isinstance(key, Stratified) for column in key.columns}
    if criterion is not None and inside != set(criterion.strata):
        raise RuleFormatError("The rule is inconsistent: its strata do not match its criterion.")
    if len(set(keys.values())) != len(keys):
        raise RuleFormatError("The rule names a crossed attribute twice.")
    return keys


def _stratified_keys(data: Mapping[str, Any], keys: Mapping[str, AttributeKey]) -> dict[str, AttributeKey]:
    """Return the attributes that are compared within strata, by the texts of a rule."""
    listed = data.get("within", {})
    if not isinstance(listed, Mapping) or not all(isinstance(entry, Mapping) for entry in listed.values()):
        raise RuleFormatError("The rule's 'within' must be an object of objects.")
    found: dict[str, AttributeKey] = {}
    for text, entry in listed.items():
        column, thin, base = entry["column"], entry["thin"], entry["attribute"]
        if text not in keys or base not in keys or base in listed or not isinstance(column, str):
            raise RuleFormatError(f"The rule's {text!r} is not an attribute within strata.")
        if thin is not None and not (type(thin) is int and thin >= FEWEST_ROWS):
            raise RuleFormatError(f"The rule's 'thin' must be a whole number of rows or null; got {thin!r}.")
        crossed = _crossed(entry.get("columns", []), text)
        found[text] = Stratified(base_of(keys[base]), column, thin, crossed)
        members = data["groups"][base]
        for pair in data["groups"][text]:
            parts = pair.get("tuple") if isinstance(pair, Mapping) else None
            if not isinstance(parts, list) or len(parts) != 2 or parts[1] not in members:
                raise RuleFormatError(f"The groups of {text!r} must be pairs of a stratum and a group of {base!r}.")
            stratum = parts[0].get("tuple") if isinstance(parts[0], Mapping) else None
            if crossed and not (isinstance(stratum, list) and len(stratum) == len(crossed)):
                raise RuleFormatError(f"The strata of {text!r} must be tuples with a value of each of its columns.")
    return found


def _crossed(columns: Any, text: str) -> tuple[str, ...]:
    """Return the columns whose combinations are strata; empty if there are none."""
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise RuleFormatError(f"The columns of {text!r} must be a list of names.")
    if len(columns) == 1 or len(set(columns)) != len(columns):
        raise RuleFormatError(f"The columns of {text!r} must be two or more different ones.")
    return tuple(columns)


def _key(value: Any, keys: Mapping[str, AttributeKey]) -> AttributeKey | None:
    if value is None or isinstance(value, str):
        return None if value is None else keys.get(value, value)
    raise RuleFormatError(f"An event's attribute must be text or null; got {value!r}.")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise RuleFormatError(f"The rule gives the field {repeated!r} twice.")
    return data


def _no_constant(name: str) -> Any:
    raise RuleFormatError(f"The rule has {name} where a number is needed.")
