"""What a rule is learnt from: rows with the probabilities of models that did not see them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from evenhand.estimator.sample import RowNumbers, Sample
from evenhand.inputs import FloatArray
from evenhand.rows import Rows
from evenhand.rules.events import AttributeKey


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldOut(Rows):
    """Rows that no model was trained on, and what the models say about them.

    Besides what all :class:`evenhand.rows.Rows` have (``y``, ``sensitive_features``, ``groups``, ``p_y``, ``p_group``,
    ``sample_weight``):

    Attributes
    ----------
    rows : array of int
        Their numbers among the rows that ``fit`` was given.
    """

    rows: RowNumbers

    @classmethod
    def of(cls, sample: Sample, rows: RowNumbers, p_y: FloatArray, p_group: dict[AttributeKey, FloatArray]) -> HeldOut:
        """Take some rows of a sample, with their probabilities."""
        taken = sample.rows.take(rows)
        known = {field.name: getattr(taken, field.name) for field in fields(Rows)}
        return cls(**{**known, "p_y": p_y, "p_group": p_group}, rows=rows)
