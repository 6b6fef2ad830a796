"""A receipt: the explanation of one row's decision, in numbers and in words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from evenhand.display import Description, Displayed, Table
from evenhand.figures import Figure
from evenhand.inputs import joined
from evenhand.rules.describing import draw_receipt
from evenhand.rules.events import Event
from evenhand.text import printable, short_name

SMALLEST = 0.0005
MOST_REASONS = 3


@dataclass(frozen=True)
class Contrast:
    """A term that compares two groups: their names, and the label of the rows; None is everyone."""

    first: str
    second: str
    label: int | None

    @classmethod
    def of(cls, coefficients: Sequence[float], events: Sequence[Event]) -> Contrast | None:
        """Return the groups that a term compares; None if it is not the difference of two groups' rates."""
        used = [(event, c) for event, c in zip(events, coefficients, strict=True) if c != 0.0]
        if len(used) != 2 or used[0][1] != -used[1][1]:
            return None
        (first, c), (second, _) = used
        alike = (first.attribute, first.label, first.kind) == (second.attribute, second.label, second.kind)
        if first.attribute is None or first.kind != "selection" or not alike:
            return None
        names = joined(first.group), joined(second.group)
        return cls(*(names if c > 0.0 else names[::-1]), first.label)


@dataclass(frozen=True, repr=False)
class Receipt(Displayed):
    """The explanation of one row's decision.

    Attributes
    ----------
    probability : float
        The base model's P(Y = positive | x).
    margin : float
        The margin before fairness: 2 p - 1 without costs.
    terms : dict
        What each constraint adds to the margin: -z_k g_k(x); with strata, only those of the row's own stratum.
    fair_margin : float
        The margin plus all terms; the decision is positive iff it is above 0.
    bias_scores : tuple of float
        The paper's s_k(x).
    base_decision, decision
        The labels before and after.
    flipped : bool
        Whether they differ.
    distance : float
        The distance from the decision boundary, in probability: by how much p would have to change for the other
        decision, with all else equal.
    slope : float, default=2
        The change of the margin per unit of probability.
    contrasts : tuple, default=()
        The groups that each term compares, for :attr:`words`: a :class:`Contrast` and the sign of z, or None.
    """

    probability: float
    margin: float
    terms: dict[str, float]
    fair_margin: float
    bias_scores: tuple[float, ...]
    base_decision: Hashable
    decision: Hashable
    flipped: bool
    distance: float
    slope: float = field(default=2.0, compare=False)
    contrasts: tuple[tuple[Contrast, float] | None, ...] = field(default=(), compare=False)

    @property
    def words(self) -> tuple[str, ...]:
        """The receipt in sentences: the model's probability, the effect of each comparison, and the decision."""
        threshold = self.probability - self.margin / self.slope
        begin = f"The model gives {_percent(self.probability)}; a positive decision needs more than {threshold:.0%}."
        compared = [*self.contrasts, *[None] * (len(self.terms) - len(self.contrasts))]
        given = [(n, a / self.slope, c) for (n, a), c in zip(self.terms.items(), compared, strict=True)]
        ordered = sorted(given, key=lambda entry: -abs(entry[1]))
        reasons = [_reason(*entry) for entry in ordered[:MOST_REASONS] if abs(entry[1]) >= SMALLEST]
        rest = sum(entry[1] for entry in ordered[MOST_REASONS:])
        if abs(rest) >= SMALLEST:
            reasons.append(f"All other comparisons together: {_points(rest)}.")
        side = "above" if self.fair_margin > 0.0 else "not above"
        verb = f"{self.decision} instead of {self.base_decision}" if self.flipped else f"{self.decision}, as before"
        left = threshold + self.fair_margin / self.slope
        end = f"Together {_percent(left)}, {side} {threshold:.0%}: {verb}."
        return (begin, *reasons, end)

    def plot(self) -> Figure:
        """Return a figure of how the model's probability becomes the decision, comparison by comparison."""
        return draw_receipt(self)

    def __str__(self) -> str:
        lines = [f"probability {self.probability:.4f}, margin {self.margin:+.4f}: alone, {self.base_decision!r}"]
        lines += [f"  {amount:+.4f}  from {printable(name)}" for name, amount in self.terms.items()]
        verb = "flipped to" if self.flipped else "stays"
        lines.append(f"fair margin {self.fair_margin:+.4f}: {verb} {self.decision!r}")
        lines.append(f"distance to the boundary: {self.distance:.4f} in probability")
        return "\n".join(lines)

    def __repr__(self) -> str:
        change = f"{self.base_decision!r} -> {self.decision!r}" if self.flipped else f"stays {self.decision!r}"
        return f"<Receipt: {change}, probability {self.probability:.4f}, fair margin {self.fair_margin:+.4f}>"

    def _describe(self) -> Description:
        rows = [("the model's probability as a margin", f"{self.margin:+.4f}")]
        rows += [(f"from {name}", f"{amount:+.4f}") for name, amount in self.terms.items()]
        rows.append(("fair margin", f"{self.fair_margin:+.4f}"))
        change = f"{self.base_decision} → {self.decision}" if self.flipped else f"stays {self.decision}"
        last = f"A change of {self.distance:.4f} in probability would reverse the decision."
        return Description(f"Receipt: {change}", [*self.words, Table(("what adds up", "margin"), tuple(rows)), last])


def _points(share: float) -> str:
    return f"{100.0 * share:+.1f} points".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f}%"


def _reason(name: str, points: float, contrast: tuple[Contrast, float] | None) -> str:
    size = _points(points)
    if contrast is None:
        return f"The bound on {short_name(name)}: {size}."
    compared, sign = contrast
    # The term adds -z (d_first - d_second) to the margin: the signs of z and of the amount show which group is meant.
    leans_first = points * sign < 0.0
    like, unlike = (compared.first, compared.second) if leans_first else (compared.second, compared.first)
    label = {None: "", 0: " among those with a negative label", 1: " among those with a positive label"}[compared.label]
    direction = "lowers" if points < 0.0 else "raises"
    typical = f"These features are more typical of {short_name(like)} than of {short_name(unlike)}"
    return f"{typical}, and the rule {direction} how often {short_name(like)} is selected{label}: {size}."
