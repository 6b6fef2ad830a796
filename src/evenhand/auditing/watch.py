"""Monitors decisions over time, with states and confidence sequences that stay valid however often they are checked."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arguments import check_choice, check_label, check_path, check_whole, shown
from evenhand.auditing import watch_file
from evenhand.auditing.audit import criterion_name
from evenhand.auditing.watch_counts import BLOCKS, Counts, read_batch, read_ids, read_late_labels
from evenhand.auditing.watch_findings import Moment, State, WatchedGap, WatchedVerdict
from evenhand.auditing.watch_system import Declared, Planned, Sequences, System, plan
from evenhand.auditing.watch_text import describe_watch, lines
from evenhand.display import Description, Displayed
from evenhand.errors import InputError
from evenhand.files import local_path, write_text
from evenhand.inputs import Missing, SensitiveFeatures, read_members
from evenhand.rules.constraints import Constraint
from evenhand.rules.criteria import Criterion, check_tolerance, resolve
from evenhand.rules.events import AttributeKey, Stratified, display_names, strata_texts
from evenhand.statistics.intervals import check_confidence
from evenhand.statistics.sequences import restart_share

MOST_MOMENTS = 256
MOST_CHANGES = 1000


class Watch(Displayed):
    """Monitor decisions as they are made, and report at any time whether a criterion holds.

    An audit's interval is valid for one look. A watch may be checked after every row, and stopped when it reports
    "violated": over all checks together, it is wrong with probability at most ``1 - confidence``.

    Parameters
    ----------
    criterion : str or Criterion
        The criterion to monitor.
    tolerance : float
        The largest allowed gap, for criteria without their own tolerance.
    confidence : float, default=0.95
        The probability that all confidence sequences hold at all times: of all rates, gaps and criteria, since the
        start and in every window.
    window : int or None, default=10000
        Besides the sequence since the start, keep one over this number of last rows (up to a fifth more), in which a
        change shows sooner. None keeps only the sequence since the start, which then gets all of the error.
    groups : sequence, or dict of sequences by attribute, default=None
        The groups. With None, groups are added as they occur; sequences are narrower if the groups are given.
    strata : sequence, or dict of sequences by column, default=None
        The strata, for a criterion with ``within``. With None, strata are added as they occur; sequences are narrower
        if the strata are given. Rows of other strata are an error, or count in no stratum if the criterion has
        ``thin``.
    pos_label : label, default=1
        The positive label.
    missing : {"raise", "ignore"}, default="raise"
        Whether a row of unknown group is an error, or counts for no group.

    Attributes
    ----------
    state : {"holds", "violated", "undecided"}
        "violated": the whole interval of a gap is beyond the tolerance, since the start or in the window. "holds":
        the whole interval of every gap since the start is within it, and none is beyond it in the window.
        Otherwise "undecided".
    since : int
        The number of rows after which the present state began.
    changes : tuple of (int, str)
        When the state changed, and to which state.
    rows : int
        The number of rows so far.
    waiting : int
        The number of rows whose label has not arrived yet.
    verdicts : tuple of WatchedVerdict
        One for each criterion and attribute.
    gaps : tuple of WatchedGap
        Each bounded combination of rates, such as the difference of any two groups.
    left_out : tuple of str
        The strata that are not judged at present, because a compared cell has fewer rows than the criterion's ``thin``.
    moments : tuple of Moment
        Earlier states, at most 256, evenly spread over the updates.

    Notes
    -----
    *The sequences* of the rates are those of :mod:`evenhand.statistics.sequences`: bets on every decision, mixed
    over fixed stakes, and Ville's inequality. They need only counts. A gap is compared through the sequences of its
    rates, so that all gaps, of any number of criteria, hold simultaneously if the rates' sequences do.

    *The error* ``1 - confidence`` is divided at the start: half for the sequences since the start, half for the
    windows (all to the former without a window); equally between the attributes; equally between the labels that
    the criterion conditions on; and equally between the groups that are given, else 1/2, 1/6, 1/12, ... of it to
    the first, second, third group that occurs. An attribute within strata has its own part of the error, which is
    first divided between the strata in the same way: equally if they are given, else 1/2, 1/6, 1/12, ... in the order
    in which they occur. These shares never add up to more than 1, and do not depend on decisions. By the union bound
    all sequences hold simultaneously. ``thin`` only selects what is reported, so it costs no error.

    *Windows.* The rows are divided into blocks of a fifth of the window, numbered k = 1, 2, ... At the first row of
    every block a new sequence of each rate starts, over the rows from there on. The wealth of its bets starts at 1
    regardless of the past, so it is a martingale given the past, and by Ville's inequality the sequence holds at all
    later times except with probability e_k. With e_k = e (1 / log2(k + 1) - 1 / log2(k + 2)), whose sum over all k is
    e, all of these infinitely many sequences hold simultaneously except with probability e. The window shows the
    sequence that started five blocks before the present one, which is one of them.

    *Assumptions.* For each rate, the sequence covers the mean of the probabilities of the decisions so far: if rates
    drift, their average over the rows of the sequence. Independence is not assumed. If the groups' shares of the rows
    drift together with the rates, averages since the start can differ although the rates never did; the window is less
    prone to that. Rows count among those of a label when the label arrives: whether and when it arrives must not depend
    on the decision. For the windows of added watches, the time of the addition must not depend on it, either.

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> watch = eh.Watch("demographic_parity", tolerance=0.05, groups=["F", "M"])
    >>> for day in range(20):
    ...     sex = rng.choice(["F", "M"], 1000)
    ...     state = watch.update(rng.random(1000) < np.where(sex == "F", 0.3, 0.45), sex)
    >>> state, watch.since
    ('violated', 2000)
    """

    def __init__(
        self,
        criterion: str | Criterion,
        tolerance: float,
        confidence: float = 0.95,
        *,
        window: int | None = 10_000,
        groups: Mapping[Any, Sequence[Hashable]] | Sequence[Hashable] | None = None,
        strata: Mapping[str, Sequence[Hashable]] | Sequence[Hashable] | None = None,
        pos_label: Hashable = 1,
        missing: Missing = "raise",
    ) -> None:
        self.criterion = resolve(criterion)
        if self.criterion.kinds != {"selection"}:
            raise InputError(
                "A watch monitors rates of positive decisions, among everyone or among the rows of one label, but this"
                f" criterion is about {', '.join(sorted(self.criterion.kinds - {'selection'}))}: audit it instead."
            )
        self.tolerance = check_tolerance(tolerance)
        self.confidence = check_confidence(confidence)
        self.window = None if window is None else check_whole(window, "window", at_least=BLOCKS)
        self.groups = _read_groups(groups)
        self.strata = _read_declared(strata, self.criterion.strata)
        self.pos_label = check_label(pos_label)
        self.missing: Missing = (
            "raise" if check_choice(missing, "missing", ("raise", "ignore")) == "raise" else "ignore"
        )
        self.changes: tuple[tuple[int, State], ...] = ((0, "undecided"),)
        self._counts = Counts(None if self.window is None else -(-self.window // BLOCKS))
        self._attributes: tuple[AttributeKey, ...] | None = None
        self._began: dict[tuple[str, str | None], tuple[State, int]] = {}
        self._moments: list[Moment] = []
        self._updates, self._stride = 0, 1
        self._written: System | None = None

    @property
    def state(self) -> State:
        """The present state."""
        return self.changes[-1][1]

    @property
    def since(self) -> int:
        """The number of rows after which the present state began."""
        return self.changes[-1][0]

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        return self._counts.rows

    @property
    def waiting(self) -> int:
        """The number of rows whose label has not arrived yet."""
        return len(self._counts.waiting)

    @property
    def moments(self) -> tuple[Moment, ...]:
        """Earlier states, evenly spread over the updates."""
        return tuple(self._moments)

    def update(
        self,
        decisions: ArrayLike,
        groups: SensitiveFeatures,
        y: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        strata: SensitiveFeatures | None = None,
    ) -> State:
        """Count rows, one or many, and return the state.

        Parameters
        ----------
        decisions : array-like
            The decisions: booleans, 0 and 1, or the two labels.
        groups : array-like, Series, frame or dict of columns
            Each row's group, as the sensitive features of :func:`evenhand.audit`.
        y : array-like, default=None
            The labels, missing (None or NaN) if they have not arrived yet.
        ids : array-like, default=None
            Text or whole numbers that identify the rows. A row without a label then waits for it. If its identifier
            occurs again with a label, here or in :meth:`add_labels`, it is counted among the rows of that label. At
            most a million rows wait; the oldest are dropped.
        strata : array-like, Series, frame or dict of columns, default=None
            Each row's stratum, for a criterion with ``within``.

        Returns
        -------
        {"holds", "violated", "undecided"}
        """
        batch = read_batch(
            decisions,
            groups,
            y,
            ids,
            pos_label=self.pos_label,
            missing=self.missing,
            members=self.groups,
            criterion=self.criterion,
            strata=strata,
            known_strata=self.strata,
        )
        self._counts.check(batch)
        if self._attributes is None:
            self._begin(tuple(batch.attributes))
        elif set(self._attributes) != set(batch.attributes):
            known, got = (list(map(str, names)) for names in (self._attributes, batch.attributes))
            raise InputError(f"groups has the attributes {got!r}, but this watch counts {known!r}.")
        ordered = {key: batch.attributes[key] for key in self._attributes or ()}
        self._counts.add(dataclasses.replace(batch, attributes=ordered), keep=self.criterion.needs_joint)
        return self._look()

    def add_labels(self, ids: ArrayLike, y: ArrayLike) -> State:
        """Add labels that have arrived for waiting rows, and return the state.

        Parameters
        ----------
        ids : array-like
            The identifiers that the rows had in :meth:`update`. Unknown identifiers are ignored.
        y : array-like
            The labels; missing ones are ignored.
        """
        names = read_ids(ids, np.size(np.asarray(ids, dtype=object)))
        labels = read_late_labels(y, len(names), self.pos_label)
        known = [place for place, name in enumerate(names) if name in self._counts.waiting]
        self._counts.arrive([names[place] for place in known], labels[known])
        return self._look()

    @property
    def verdicts(self) -> tuple[WatchedVerdict, ...]:
        """One for each criterion and attribute."""
        if self._attributes is None:
            return ()
        system = self._system()
        start, window = self._sequences(system)
        names = display_names(self._attributes)
        found = []
        for planned, part in zip(system.planned, system.parts, strict=True):
            key = criterion_name(planned.criterion), None if planned.attribute is None else names[planned.attribute]
            judged = self._judged(system, part)
            gap = start.distance(system.bounds, judged)
            recent = None if window is None else window.distance(system.bounds, judged)
            tolerance = self._tolerance(planned.example)
            state: State = "holds" if gap.upper <= tolerance else "undecided"
            if max(gap.lower, 0.0 if recent is None else recent.lower) > tolerance:
                state = "violated"
            before, since = self._began.get(key, ("undecided", 0))
            found.append(WatchedVerdict(*key, gap, recent, tolerance, state, since if before == state else self.rows))
        return tuple(found)

    @property
    def gaps(self) -> tuple[WatchedGap, ...]:
        """Each bounded combination of rates."""
        if self._attributes is None:
            return ()
        system = self._system()
        start, window = self._sequences(system)
        return tuple(
            WatchedGap(b.name, start.estimate(k), None if window is None else window.estimate(k), self._tolerance(b))
            for k, b in enumerate(system.bounds)
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """The strata that are not judged at present, because a compared cell has few rows."""
        if self._attributes is None:
            return ()
        system = self._system()
        judged = {place for part in system.parts for place in self._judged(system, part).tolist()}
        strata = [bound.terms[0][0].stratum for bound in system.bounds]
        known = dict.fromkeys(stratum for stratum in strata if stratum is not None)
        texts = dict(zip(known, strata_texts({column: value} for column, value in known), strict=True))
        out = [stratum for k, stratum in enumerate(strata) if k not in judged and stratum is not None]
        return tuple(texts[stratum] for stratum in dict.fromkeys(out))

    def _judged(self, system: System, part: slice) -> NDArray[np.intp]:
        """Return the bounds of a part, without those of strata in which a compared cell has few rows."""
        places, cells = np.arange(part.start, part.stop), system.bounds[part]
        keys = {bound.terms[0][0].attribute for bound in cells}
        thin = max((key.thin or 0 for key in keys if isinstance(key, Stratified)), default=0)
        if not thin:
            return places
        trials = self._counts.of(system.events)[0][0]
        rows = dict(zip(system.events, trials, strict=True))
        few = {event.stratum for bound in cells for event, _ in bound.terms if rows[event] < thin}
        return places[[bound.terms[0][0].stratum not in few for bound in cells]]

    def __add__(self, other: object) -> Watch:
        """Return a watch over the rows of both, such as two sites that are monitored at the same time.

        Counts add up, and the last blocks of the two windows are combined. Earlier states are not kept.
        """
        if not isinstance(other, Watch):
            return NotImplemented
        for name in ("criterion", "tolerance", "confidence", "window", "groups", "strata", "pos_label", "missing"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InputError(f"These watches cannot be added: one has {name}={shown(mine)}, one {shown(theirs)}.")
        begun = {frozenset(watch._attributes) for watch in (self, other) if watch._attributes is not None}
        if len(begun) > 1:
            raise InputError("These watches cannot be added: they count different attributes.")
        new = self._empty()
        new._attributes = other._attributes if self._attributes is None else self._attributes
        new._counts = self._counts + other._counts
        if new._attributes is not None:
            new._look()
        return new

    def to_json(self) -> str:
        """Return the watch as JSON text, from which :meth:`from_json` continues exactly."""
        return watch_file.write(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the watch that a JSON text describes, or raise :class:`~evenhand.errors.WatchFormatError`."""
        return watch_file.read(text, cls)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the watch to a JSON file; the file is complete or absent."""
        check_path(path)
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the watch in a file; reading it executes nothing."""
        check_path(path)
        return cls.from_json(watch_file.text_of(local_path(path)))

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__

    def _describe(self) -> Description:
        return describe_watch(self)

    def _empty(self) -> Self:
        options = {name: getattr(self, name) for name in ("window", "groups", "pos_label", "missing")}
        options["strata"] = self.strata or None
        return type(self)(self.criterion, self.tolerance, self.confidence, **options)

    def _begin(self, keys: tuple[AttributeKey, ...]) -> None:
        """Set the attributes to monitor from the first rows."""
        plain = [key for key in keys if isinstance(key, str)]
        if isinstance(self.groups, dict) and (stray := [name for name in self.groups if name not in plain]):
            raise InputError(f"The watch has groups of {stray[0]!r}, but the rows have {plain!r}.")
        planned = plan(self.criterion, keys)
        self._check_named(planned)
        self._counts.everyone = any(None in part.labels for part in planned)
        self._attributes = keys
        self._counts.register([(key, group) for key in plain for group in self._given(key) or ()])
        inside = [key for key in keys if isinstance(key, Stratified)]
        self._counts.register(
            [
                (key, pair)
                for key in inside
                for pair in itertools.product(self.strata.get(key.within, ()), self._given(key.attribute) or ())
            ]
        )

    def _check_named(self, planned: Sequence[Planned]) -> None:
        """Raise if the criterion names a group that is not among the given ones: it will never occur."""
        for key, group in ((key, group) for part in planned for key, names in part.named.items() for group in names):
            given = self._given(key)
            if given is not None and group not in given:
                raise InputError(f"The criterion names the group {group!r} of {key!r}; the watch has {list(given)!r}.")

    def _given(self, key: AttributeKey) -> tuple[Hashable, ...] | None:
        """Return the given groups of an attribute; those of a crossed one are added as they occur."""
        if not isinstance(key, str):
            return None
        return self.groups.get(key) if isinstance(self.groups, dict) else self.groups

    def _look(self) -> State:
        """Evaluate the present counts, and record changes."""
        verdicts = self.verdicts
        self._began = {(v.criterion, v.attribute): (v.state, v.since) for v in verdicts}
        states = {verdict.state for verdict in verdicts}
        state: State = "violated" if "violated" in states else "holds" if states == {"holds"} else "undecided"
        if state != self.state:
            self.changes = (*self.changes, (self.rows, state))[-MOST_CHANGES:]
        if self._updates % self._stride == 0:
            self._moments.append(Moment(self.rows, tuple((v.since_start, v.window) for v in verdicts)))
        self._updates += 1
        if len(self._moments) > MOST_MOMENTS:
            self._moments = self._moments[::2]
            self._stride *= 2
        return state

    def _tolerance(self, bound: Constraint) -> float:
        return self.tolerance if bound.tolerance is None else bound.tolerance

    def _system(self) -> System:
        """Return the criterion expanded for the groups that occurred so far."""
        assert self._attributes is not None
        if self._written is None or self._written.cells != len(self._counts.cells):
            groups = self._counts.groups()
            given = frozenset(key for key in groups if self._given(key) is not None)
            # A column of strata whose values are all unknown so far has no pairs yet.
            groups |= {key: () for key in self._attributes if isinstance(key, Stratified) and key not in groups}
            planned, cells = plan(self.criterion, self._attributes), len(self._counts.cells)
            self._written = System.of(planned, groups, Declared(given, self.strata), cells)
        return self._written

    def _sequences(self, system: System) -> tuple[Sequences, Sequences | None]:
        """Return the sequences of combinations of rates: since the start, and in the window."""
        start, window = self._counts.of(system.events)
        error = 1.0 - self.confidence
        if self.window is None:
            return Sequences.of(system.matrix, start, error * system.shares), None
        later = float(restart_share(self._counts.start))
        first = Sequences.of(system.matrix, start, error / 2.0 * system.shares)
        return first, Sequences.of(system.matrix, window, error / 2.0 * later * system.shares)


def _read_groups(groups: Any) -> dict[str, tuple[Hashable, ...]] | tuple[Hashable, ...] | None:
    if groups is None:
        return None
    if not isinstance(groups, Mapping):
        return read_members(groups, "groups")
    return {str(name): read_members(members, f"groups of {name!r}") for name, members in groups.items()}


def _read_declared(strata: Any, columns: Sequence[str]) -> dict[str, tuple[Hashable, ...]]:
    """Return the strata that were declared, by column."""
    if strata is None:
        return {}
    if not columns:
        raise InputError("strata needs a criterion with within=, such as within='occupation'.")
    if not isinstance(strata, Mapping):
        if len(columns) > 1:
            raise InputError(f"strata must be a dict of the strata of {list(columns)!r}; got {shown(strata)}.")
        strata = {columns[0]: strata}
    if stray := [name for name in strata if name not in columns]:
        raise InputError(f"strata names {shown(stray[0])}; the criterion has strata of {list(columns)!r}.")
    found = {name: read_members(members, f"strata of {name!r}") for name, members in strata.items()}
    if empty := [name for name, members in found.items() if not members]:
        raise InputError(f"strata of {empty[0]!r} is empty: name the strata, or leave it out.")
    return found
