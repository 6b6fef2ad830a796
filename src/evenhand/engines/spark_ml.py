"""A rule as a stage of a Spark ML pipeline: :class:`FairTransformer`, in :mod:`evenhand.engines.spark`."""

from __future__ import annotations

import dataclasses
from typing import Any

from pyspark import keyword_only
from pyspark.ml import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable

from evenhand.engines.remembered import remember
from evenhand.engines.source import columns_of_rule
from evenhand.engines.spark_frame import apply
from evenhand.errors import InputError, RuleFormatError
from evenhand.rules.rule import Rule


class FairTransformer(Transformer, DefaultParamsReadable[Any], DefaultParamsWritable):
    """A Spark ML transformer that adds the decisions of a rule to a DataFrame.

    It is saved and loaded like other stages, alone or in a PipelineModel; the rule is stored as JSON, and nothing is
    pickled. It adds the columns of :func:`evenhand.engines.spark.apply`.

    Parameters
    ----------
    rule : Rule
        The rule.
    p_y : str or None, default=None
        The column of P(Y = positive | x). A vector such as a classifier's ``probability`` means its second entry;
        ``"probability[0]"`` is the first. ``None`` is the column that the rule was learnt on.
    p_group : dict, or dict of dicts by attribute, default=None
        The column of each group, or of each pair (label, group), which may also be an entry of a vector.
    prefix : str, default=""
        The prefix of the names of the new columns.
    keep : bool, default=True
        Whether the DataFrame's own columns are kept.
    """

    rule = Param(Params._dummy(), "rule", "the rule, as JSON", typeConverter=TypeConverters.toString)
    prefix = Param(Params._dummy(), "prefix", "put before the new columns", typeConverter=TypeConverters.toString)
    keep = Param(Params._dummy(), "keep", "whether columns are kept", typeConverter=TypeConverters.toBoolean)

    @keyword_only
    def __init__(
        self,
        *,
        rule: Rule | None = None,
        p_y: str | None = None,
        p_group: Any = None,
        prefix: str = "",
        keep: bool = True,
    ) -> None:
        super().__init__()
        self._setDefault(prefix="", keep=True)
        # A stage that is read is created empty first.
        if rule is not None:
            self._set(rule=_with_columns(rule, p_y, p_group).to_json(), prefix=prefix, keep=keep)

    def getRule(self) -> Rule:  # noqa: N802 (Spark ML's way to name what returns a parameter)
        """Return the rule."""
        if not self.isDefined(self.rule):
            raise InputError("This FairTransformer has no rule: create it with FairTransformer(rule=rule).")
        try:
            return Rule.from_json(self.getOrDefault(self.rule))
        except RuleFormatError as error:
            raise InputError(f"The rule of this FairTransformer cannot be read: {error}") from None

    def _transform(self, dataset: Any) -> Any:
        return apply(self.getRule(), dataset, prefix=self.getOrDefault(self.prefix), keep=self.getOrDefault(self.keep))


def _with_columns(rule: Rule, p_y: str | None, p_group: Any) -> Rule:
    """Return a rule that records the columns it is applied to."""
    score, cells = columns_of_rule(rule, p_y, p_group)
    columns = {name: (len(row) == 2 * len(rule.groups[name]), [row[key] for key in row]) for name, row in cells.items()}
    return dataclasses.replace(rule, learned_from={**rule.learned_from, "columns": remember(score, columns)})
