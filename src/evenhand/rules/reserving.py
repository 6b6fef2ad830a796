"""Chooses the rows that are reserved for certifying, and how many."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import InputError
from evenhand.inputs import FloatArray
from evenhand.rows import Rows
from evenhand.rules.certify import claims, even_quantiles, has_paths, may_overlap
from evenhand.rules.criteria import Criterion
from evenhand.rules.events import FEWEST_ROWS, Event
from evenhand.rules.parities import PredictiveParity
from evenhand.rules.rate_bounds import MinimaxRate
from evenhand.rules.system import System, write_out
from evenhand.statistics.sampling import stratified_share

# Paths need few rows to learn, ladders more, and models that are trained on the same rows still more.
CERTIFYING_SHARE = 0.9
CERTIFYING_SHARE_OF_LADDERS = 0.6
CERTIFYING_SHARE_WITH_MODELS = 0.5
LARGEST_SHARE_WITH_MODELS = 0.8
# Paths learn from at least this many rows of each event, if there are at least twice as many.
LEARNING_ROWS = 15
# The part of a tolerance that a bound may take before more rows are reserved.
COMFORTABLE_PART = 0.75


def certifying_share(criterion: Criterion, rows: Rows, tolerance: float) -> float:
    """Return the share of the rows that certify if the probabilities are given."""
    rows = rows.for_criterion(criterion)
    system = write_out(criterion, rows.groups)
    if not has_paths(system, claims(system, tolerance)):
        return CERTIFYING_SHARE_OF_LADDERS
    fewest = min(int(rows_of(event, rows).sum()) for event in system.events)
    return float(np.clip(1.0 - LEARNING_ROWS / max(fewest, 1), CERTIFYING_SHARE_WITH_MODELS, CERTIFYING_SHARE))


def reserve_rows(criterion: Criterion, rows: Rows, rng: np.random.RandomState, share: float) -> NDArray[np.bool_]:
    """Return a mask of the rows that are reserved for certifying: a share of them, stratified by event.

    Rows are stratified only so far that each event lies within one stratum: by group for demographic parity, by label
    and group for equalized odds. If demographic parity's rows were stratified by label as well, a sample with too many
    positives in a group would have too many in both parts, and the test could not detect the error.

    Parameters
    ----------
    criterion : Criterion
        The criterion to certify.
    rows : Rows
        The rows, with their labels and groups.
    rng : RandomState
        The generator for the draw.
    share : float
        The share of the rows to reserve.
    """
    rows = rows.for_criterion(criterion)
    inside, stratum = _strata(criterion, rows)
    reserved = stratified_share([stratum], share, rng)
    _check_parts(inside, reserved)
    return reserved


def reserve_enough(
    criterion: Criterion, rows: Rows, rng: np.random.RandomState, *, tolerance: float, confidence: float
) -> NDArray[np.bool_]:
    """Return a mask of the reserved rows if the others also train the models: half of them, or more if needed.

    A fifth of the rows is drawn first and never reserved. Their rate of positive labels, and the numbers of rows in the
    events, which the test conditions on, determine how many rows certify a tolerance. So the share does not depend on
    the reserved rows' outcomes. The rows are drawn as in :func:`reserve_rows`.

    Parameters
    ----------
    criterion, rows, rng
        As in :func:`reserve_rows`.
    tolerance, confidence : float
        The guarantee to certify.
    """
    rows = rows.for_criterion(criterion)
    inside, stratum = _strata(criterion, rows)
    available = stratified_share([stratum], LARGEST_SHARE_WITH_MODELS, rng)
    system = write_out(criterion, rows.groups)
    share = CERTIFYING_SHARE_WITH_MODELS
    if has_paths(system, claims(system, tolerance)):
        assert rows.positive is not None
        counts = np.array([found.sum() for found in inside.values()], dtype=np.float64)
        part = _part_of_room(system, float(rows.positive[~available].mean()), counts, tolerance, confidence)
        if part**2 <= LARGEST_SHARE_WITH_MODELS:
            share = float(
                np.clip((part / COMFORTABLE_PART) ** 2, CERTIFYING_SHARE_WITH_MODELS, LARGEST_SHARE_WITH_MODELS)
            )
    reserved = available.copy()
    reserved[available] = stratified_share([stratum[available]], share / LARGEST_SHARE_WITH_MODELS, rng)
    _check_parts(inside, reserved)
    return reserved


def _part_of_room(system: System, positive: float, counts: FloatArray, tolerance: float, confidence: float) -> float:
    """Return the part of a tolerance that the widest bound takes if all rows certify and decisions equal labels."""
    spread = positive * (1.0 - positive)
    variances = np.array([0.25 if event.label == 1 else spread for event in system.events]) / np.maximum(counts, 1.0)
    errors = np.maximum(np.sqrt(system.matrix**2 @ variances), 1e-9)
    lower, upper = (bounds[0] for bounds in system.bounds([tolerance]))
    rooms = (upper - lower) / 2.0 / errors
    return float((even_quantiles(rooms, confidence) / rooms).max())


def _strata(criterion: Criterion, rows: Rows) -> tuple[dict[Event, NDArray[np.bool_]], NDArray[np.intp]]:
    """Return the rows of each event, and a stratum for each row such that each event lies within one."""
    if criterion.has_levels and not isinstance(criterion, PredictiveParity | MinimaxRate):
        raise InputError(
            "confidence needs PredictiveParity or MinimaxRate to be the only criterion. Combine others with MinimumRate"
            " and MaximumRate instead, or use safety=..., and audit on other rows."
        )
    events = write_out(criterion, rows.groups).measured_events
    inside = {event: rows_of(event, rows) for event in events}
    stratum = np.zeros(len(rows), dtype=np.intp)
    for number, cluster in enumerate(_clusters(events), start=1):
        for event in cluster:
            stratum[inside[event]] = number
    return inside, stratum


def _check_parts(inside: dict[Event, NDArray[np.bool_]], reserved: NDArray[np.bool_]) -> None:
    for event, found in inside.items():
        certifying = int((found & reserved).sum())
        fewest = min(certifying, int(found.sum()) - certifying)
        if fewest < FEWEST_ROWS:
            raise InputError(
                f"confidence needs rows for learning and rows for certifying, but only {int(found.sum())} have {event}:"
                f" one part has {fewest} of them, and needs {FEWEST_ROWS}. Merge small groups, or add rows."
            )


def rows_of(event: Event, rows: Rows) -> NDArray[np.bool_]:
    """Return a mask of the rows that an event covers: those of its group and label, for any kind of rate."""
    assert rows.positive is not None
    inside = np.ones(len(rows), dtype=bool) if event.label is None else rows.positive == bool(event.label)
    if event.attribute is not None:
        attribute = rows.attributes[event.attribute]
        inside = inside & (attribute.codes == attribute.groups.index(event.group))
    return inside


def _clusters(events: Sequence[Event]) -> list[list[Event]]:
    """Return the finest partition of the events such that events of different parts cannot overlap."""
    found: list[list[Event]] = []
    for event in events:
        touched = [cluster for cluster in found if any(may_overlap(event, other) for other in cluster)]
        found = [cluster for cluster in found if cluster not in touched]
        found.append([event, *itertools.chain.from_iterable(touched)])
    return found
