"""The options of a command that name the columns of a table of scores. Nothing heavy is imported: help is quick."""

from __future__ import annotations

import dataclasses
from typing import Literal

from cyclopts import Parameter


@Parameter(name="*")
@dataclasses.dataclass(kw_only=True)
class ScoreColumns:
    """Where the labels, groups and probabilities are."""

    label: str
    "The column of labels, with two values."

    sensitive: list[str]
    "A column of groups; several times for several attributes, each of which must meet the criterion."

    score: str | None = None
    "The column with the probability of the positive label, from a model that has not seen these rows."

    group_score: list[str] = dataclasses.field(default_factory=list)
    "GROUP=COLUMN: the column with the probability of a group. Once for each group; one may be left out."

    joint_score: list[str] = dataclasses.field(default_factory=list)
    "LABEL,GROUP=COLUMN: the probability of a label together with a group, for eo, eop and pe."

    pos_label: str | None = None
    "The positive label; 1 or true by default."

    weight: str | None = None
    "A column of weights."

    ignore_missing: bool = False
    "Rows of unknown group count for accuracy and for no group; otherwise they are an error."

    @property
    def missing(self) -> Literal["raise", "ignore"]:
        """What to do about rows of unknown group."""
        return "ignore" if self.ignore_missing else "raise"
