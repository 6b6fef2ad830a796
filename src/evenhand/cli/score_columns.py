"""The options that name the columns of a table of scores. Nothing heavy is imported, so that help is fast."""

from __future__ import annotations

import dataclasses
from typing import Literal

from cyclopts import Parameter


@Parameter(name="*")
@dataclasses.dataclass(kw_only=True)
class ScoreColumns:
    """The columns of labels, groups and probabilities."""

    label: str
    "The column of labels, with two values."

    sensitive: list[str]
    "A column of groups; repeat for several attributes, each of which must meet the criterion."

    score: str | None = None
    "The column with the probability of the positive label, from a model that was not trained on these rows."

    group_score: list[str] = dataclasses.field(default_factory=list)
    "GROUP=COLUMN: the column with the probability of a group. Once for each group; one may be left out."

    joint_score: list[str] = dataclasses.field(default_factory=list)
    "LABEL,GROUP=COLUMN: the probability of a label together with a group, for eo, eop and pe."

    pos_label: str | None = None
    "The positive label; 1 or true by default."

    weight: str | None = None
    "A column of weights."

    ignore_missing: bool = False
    "Rows of unknown group count for accuracy but not for any group; otherwise they are an error."

    @property
    def missing(self) -> Literal["raise", "ignore"]:
        """How rows of unknown group are handled."""
        return "ignore" if self.ignore_missing else "raise"
