"""The quality of the probabilities that a rule was learnt from: counts, calibration and AUC, as plain data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from evenhand.display import Description, Displayed, Table
from evenhand.estimator.auxiliary import Target
from evenhand.inputs import FloatArray
from evenhand.rules.events import AttributeKey
from evenhand.statistics.calibration import calibration_error
from evenhand.text import short_name, table_text

WEAK_AUC = 0.55


@dataclass(frozen=True)
class Cell:
    """The number of rows, and their weight, with one label in one group."""

    attribute: str
    group: Hashable
    label: Hashable
    rows: int
    weight: float


@dataclass(frozen=True)
class ClassQuality:
    """The quality of the predictions for one class against all others.

    Attributes
    ----------
    model : str
        What is estimated, such as ``p(Y|x)``.
    name : str
        The class.
    share : float
        The share of the weight that has the class.
    auc : float
        The area under the ROC curve; NaN if all rows, or none, have the class.
    brier : float
        The mean squared error of the probability.
    calibration_error : float
        The expected calibration error in ten bins of equal weight.
    """

    model: str
    name: str
    share: float
    auc: float
    brier: float
    calibration_error: float


@dataclass(frozen=True)
class Separation:
    """How well an auxiliary model separates an attribute's groups, among all rows or those with one label.

    ``auc`` is that of the best separated group. The label's own part in p(Y, A|x) is removed first by conditioning on
    the label, so a model that predicts the label but not the group has an AUC of 0.5.
    """

    attribute: str
    label: Hashable | None
    auc: float

    @property
    def weak(self) -> bool:
        """Whether the groups are hardly separated."""
        return self.auc < WEAK_AUC

    def __str__(self) -> str:
        among = "" if self.label is None else f" among rows with label {self.label!r}"
        return f"the groups of {self.attribute!r}{among}"


@dataclass(frozen=True, repr=False)
class Diagnostics(Displayed):
    """The quality of the probabilities, on rows that their models were not trained on.

    Attributes
    ----------
    rows : int
        The number of rows that the rule was learnt from.
    cells : tuple of Cell
        Rows and weight by attribute, group and label.
    classes : tuple of ClassQuality
        Calibration and AUC of p(Y|x) and of each class of p(A|x) or p(Y, A|x).
    separations : tuple of Separation
        How well the groups of each attribute are separated.
    """

    rows: int
    cells: tuple[Cell, ...]
    classes: tuple[ClassQuality, ...]
    separations: tuple[Separation, ...]

    @property
    def weaknesses(self) -> tuple[Separation, ...]:
        """The weak separations."""
        return tuple(found for found in self.separations if found.weak)

    def warning(self) -> str:
        """Return a text on what the weak separations mean for the reachable gap."""
        parts = ", ".join(f"{found} (AUC {found.auc:.3f})" for found in self.weaknesses)
        return (
            f"The auxiliary model hardly separates {parts}; 0.5 is a random guess. A rule can then close a gap only"
            " by giving almost everyone the same decision, so a small tolerance costs much accuracy,"
            " and the gap on new rows may exceed it. Use a better auxiliary model or more features, a larger"
            " tolerance, or, if permitted, sensitive_at_predict=True. See diagnostics_."
        )

    def _tables(self) -> tuple[Table, Table]:
        cells = [(*map(short_name, (c.attribute, c.group, c.label)), str(c.rows)) for c in self.cells]
        classes = [
            (*map(short_name, (c.model, c.name)), *(f"{v:.3f}" for v in (c.share, c.auc, c.brier, c.calibration_error)))
            for c in self.classes
        ]
        return (
            Table(("attribute", "group", "label", "rows"), tuple(cells), names=3),
            Table(("model", "class", "share", "AUC", "Brier", "ECE"), tuple(classes), names=2),
        )

    def _separated(self) -> list[str]:
        return [f"AUC {s.auc:.3f} between {s}{' (weak)' if s.weak else ''}" for s in self.separations]

    def __str__(self) -> str:
        tables = [table_text(table.heads, table.rows, names=table.names) for table in self._tables()]
        return "\n".join([f"{self.rows} rows", "", tables[0], "", tables[1], "", *self._separated()])

    def __repr__(self) -> str:
        weak = f", {len(self.weaknesses)} weak separations" if self.weaknesses else ""
        return f"<Diagnostics: {self.rows:,} rows, {len(self.classes)} classes{weak}>"

    def _describe(self) -> Description:
        return Description(f"Diagnostics of {self.rows:,} rows", [*self._tables(), *self._separated()])


def diagnose(
    p_y: FloatArray,
    p_group: Mapping[AttributeKey, FloatArray],
    targets: Mapping[AttributeKey, Target],
    labels: tuple[Hashable, Hashable],
    rows: NDArray[np.intp],
    positive: NDArray[np.bool_],
    weight: FloatArray,
) -> Diagnostics:
    """Return the diagnostics of probabilities; ``rows`` are their row numbers in the targets."""
    cells, separations = [], []
    classes = [_quality("p(Y|x)", f"label {labels[1]!r}", p_y, positive, weight)]
    for target in targets.values():
        codes = target.attribute.codes[rows]
        for g, group in enumerate(target.groups):
            for value, label in enumerate(labels):
                inside = (codes == g) & (positive == bool(value))
                cells.append(Cell(target.text, group, label, int(inside.sum()), float(weight[inside].sum())))
        if target.name not in p_group:
            continue
        array = p_group[target.name]
        if not target.joint:
            array = (array.sum(axis=1) if array.ndim == 3 else array)[:, None, :]
        flat = array.reshape(len(rows), -1)
        known = codes >= 0
        for code in range(flat.shape[1]):
            inside, name = (target.codes[rows] == code)[known], target.class_name(code, labels)
            classes.append(_quality(target.describes, name, flat[known, code], inside, weight[known]))
        for value in range(array.shape[1]):
            among = known & (positive == bool(value)) if target.joint else known
            best = _separation(array[among, value], codes[among], weight[among])
            separations.append(Separation(target.text, labels[value] if target.joint else None, best))
    return Diagnostics(len(rows), tuple(cells), tuple(classes), tuple(separations))


def _quality(model: str, name: str, p: FloatArray, inside: NDArray[np.bool_], weight: FloatArray) -> ClassQuality:
    return ClassQuality(
        model,
        name,
        float(np.average(inside, weights=weight)),
        auc(p, inside, weight),
        float(np.average((p - inside) ** 2, weights=weight)),
        calibration_error(p, inside, weight),
    )


def _separation(p: FloatArray, codes: NDArray[np.intp], weight: FloatArray) -> float:
    """Return the AUC of the best separated group; ``p`` is known up to a factor in each row."""
    total = p.sum(axis=1, keepdims=True)
    share = np.divide(p, total, out=np.full_like(p, 1.0 / p.shape[1]), where=total > 0.0)
    found = [auc(share[:, g], codes == g, weight) for g in range(p.shape[1])]
    return float(np.nanmax(found)) if np.isfinite(found).any() else float("nan")


def auc(score: FloatArray, inside: NDArray[np.bool_], weight: FloatArray) -> float:
    """Return the weighted area under the ROC curve; ties count half, and a single class gives NaN."""
    if not 0.0 < float(weight[inside].sum()) < float(weight.sum()):
        return float("nan")
    return float(roc_auc_score(inside, score, sample_weight=weight))
