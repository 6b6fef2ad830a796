"""The rows that a rule is learnt from, with the probabilities of models that were not trained on them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from evenhand.display import Description, Displayed, Table
from evenhand.estimator.sample import RowNumbers, Sample
from evenhand.inputs import FloatArray, group_texts
from evenhand.rows import Rows
from evenhand.rules.events import AttributeKey


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HeldOut(Displayed, Rows):
    """Rows that no model was trained on, with the models' probabilities.

    It has the attributes of :class:`evenhand.rows.Rows` (``y``, ``sensitive_features``, ``groups``, ``p_y``,
    ``p_group``, ``sample_weight``) and:

    Attributes
    ----------
    rows : array of int
        Their row numbers in the data passed to ``fit``.
    """

    rows: RowNumbers

    def __repr__(self) -> str:
        return f"<HeldOut: {len(self):,} rows, labels {self.classes!r}, attributes {list(map(str, self.groups))!r}>"

    def _describe(self) -> Description:
        weights = "" if self.sample_weight is None else ", weighted"
        rows = []
        for name, attribute in self.attributes.items():
            for code, group in enumerate(group_texts(attribute.groups)):
                inside = attribute.codes == code
                cells = (
                    [] if self.positive is None else [int((self.positive[inside] == label).sum()) for label in (0, 1)]
                )
                rows.append((str(name), group, *(f"{cell:,}" for cell in (int(inside.sum()), *cells))))
        labels = [] if self.positive is None else [f"label {label}" for label in self.classes]
        parts = [Table(("attribute", "group", "rows", *labels), tuple(rows), names=2)] if rows else []
        mean = f"The mean probability of {self.classes[1]} is {self.p_y.mean():.4f}." if len(self.p_y) else ""
        return Description(f"HeldOut: {len(self):,} rows that no model was trained on{weights}", [mean, *parts])

    @classmethod
    def of(cls, sample: Sample, rows: RowNumbers, p_y: FloatArray, p_group: dict[AttributeKey, FloatArray]) -> HeldOut:
        """Return some rows of a sample, with their probabilities."""
        taken = sample.rows.take(rows)
        known = {field.name: getattr(taken, field.name) for field in fields(Rows)}
        return cls(**{**known, "p_y": p_y, "p_group": p_group}, rows=rows)
