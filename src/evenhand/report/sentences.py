"""The sentences of a report: the headline, the summary for a committee, and what more rows would settle.

All numbers come from the summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.report.numbers import interval, percent, points, tolerance_text, words
from evenhand.rules.objective import ACCURACY

MOST_GROUPS = 4
MEANINGS = {
    "demographic_parity": "positive decisions are equally frequent in every group",
    "equal_opportunity": "among people with a positive label, positive decisions are equally frequent in every group",
    "predictive_equality": "among people with a negative label, positive decisions are equally frequent in every group",
    "equalized_odds": "positive decisions are equally frequent in every group, both among people with a"
    " positive label and among people with a negative one",
    "predictive_parity": "among people with a positive decision, positive labels are equally frequent in every group",
    "accuracy_parity": "decisions are right equally often in every group",
}
_IN_SHORT = {
    "demographic_parity": "equal shares of positive decisions",
    "equal_opportunity": "equal shares of positive decisions among people with a positive label",
    "predictive_equality": "equal shares of positive decisions among people with a negative label",
    "equalized_odds": "equal shares of positive decisions for each label",
    "predictive_parity": "equal shares of positive labels among the selected people",
    "accuracy_parity": "equal shares of right decisions",
}
PROOFS = {
    "optimal": "On the rows it was learnt from, no rule in this family within the tolerance is {better}:"
    " this was proven.",
    "gap": "On the rows it was learnt from, a rule in this family could be {better} by at most {size} points:"
    " this was proven.",
    "found": "It was found by a search that does not prove optimality.",
    "unchanged": "The model already meets the tolerance and is left unchanged: no decision changes.",
    "plug-in": "It is the best rule if the probabilities are right; on counted labels it may exceed its bounds.",
}
_LABELLED = {"equal_opportunity": "true_positive_rate", "predictive_equality": "false_positive_rate"}


def headline(summary: Mapping[str, Any], step: Mapping[str, Any] | None) -> str:
    """Return the number of verdicts with the decisive outcome, and the decisive verdict with its gap."""
    state = summary["base"] if step is None else step
    verdict = state["verdicts"][state["worst"]]
    gap, tolerance = verdict["gap"], tolerance_text(verdict["tolerance"])
    subject = "The decisions" if step is None else "The fair decisions"
    lower = subject[0].lower() + subject[1:]
    what = words(verdict["criterion"]) + ("" if verdict["attribute"] is None else f" on {verdict['attribute']}")
    alike = sum(other["outcome"] == verdict["outcome"] for other in state["verdicts"])
    counted = f"{alike} of {len(state['verdicts'])} verdicts"
    if gap["value"] is None:
        return f"{subject} cannot be judged on {what}: a group has no rows to count."
    size = f"the gap is {points(gap['value'])} points ({100 * summary['confidence']:.3g}% interval {interval(gap)})"
    if verdict["outcome"] == "pass":
        everything = "" if alike == 1 else f"All {alike} verdicts are a pass. "
        return f"{everything}{subject} meet {what} to within {tolerance} points: {size}."
    if verdict["outcome"] == "fail":
        begin = subject if alike == 1 else f"{counted} fail. The one with the most evidence: {lower}"
        return f"{begin} do not meet {what} to within {tolerance} points: {size}."
    several = "" if alike == 1 else f"{counted} have insufficient evidence. "
    return f"{several}These rows do not show whether {lower} meet {what} to within {tolerance} points: {size}."


def in_short(summary: Mapping[str, Any], step: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the summary for a committee: a few questions with short answers, without symbols."""
    return {
        "What was decided": _decided(summary, step),
        "What was required": _required(summary, summary["tolerance"] if step is None else step["step_tolerance"]),
        "What changes" if step is not None else "The decisions": _changes(summary, step),
        "What it costs" if step is not None else "How many are right": _costs(summary, step),
        "How sure this is": _sure(summary, step),
    }


def _decided(summary: Mapping[str, Any], step: Mapping[str, Any] | None) -> str:
    labels = summary["labels"]
    between = "“yes” or “no”" if labels is None else f"“{labels['positive']}” or “{labels['negative']}”"
    whom = f"{summary['rows']:,} people" + (" (none used for training)" if summary["held_out"] else "")
    by = ". These decisions are audited" if step is None else " from the model, corrected by a fair rule"
    return f"Each of {whom} gets {between}{by}."


def asked(summary: Mapping[str, Any], tolerance: float) -> str:
    """Return the criteria with their meaning, the attributes and the tolerance."""
    said = [
        f"{words(name)}{f' ({MEANINGS[name]})' if name in MEANINGS and len(summary['criteria']) == 1 else ''}"
        for name in summary["criteria"]
    ]
    groups = " and by ".join(summary["attributes"])
    wanted = listed(said)
    return (
        f"{wanted[0].upper()}{wanted[1:]}, between groups by {groups}."
        f" A difference of up to {tolerance_text(tolerance)} in 100 is allowed."
    )


def _required(summary: Mapping[str, Any], tolerance: float) -> str:
    names = summary["criteria"]
    wanted = _IN_SHORT[names[0]] if len(names) == 1 and names[0] in _IN_SHORT else listed([words(n) for n in names])
    groups = " and by ".join(summary["attributes"])
    return f"{wanted[0].upper()}{wanted[1:]} by {groups}, within {tolerance_text(tolerance)} in 100."


def _changes(summary: Mapping[str, Any], step: Mapping[str, Any] | None) -> str:
    labels = summary["labels"]
    chosen = "“yes”" if labels is None else f"“{labels['positive']}”"
    rate = next((_LABELLED[name] for name in summary["criteria"] if name in _LABELLED), "selection_rate")
    if "equalized_odds" in summary["criteria"] and rate == "selection_rate":
        rate = "true_positive_rate"
    among = {
        "selection_rate": "",
        "true_positive_rate": f" and the label {chosen}",
        "false_positive_rate": "" if labels is None else f" and the label “{labels['negative']}”",
    }[rate]
    before = summary["base"]["groups"]
    places = [place for place, group in enumerate(before) if group[rate] and group[rate]["value"] is not None]
    if not places:
        return "There are no rows to count."
    some = "" if len(places) <= MOST_GROUPS else " The table below has the other groups."
    if some:
        ordered = sorted(places, key=lambda place: before[place][rate]["value"])
        places = [ordered[0], ordered[-1]]
    parts: list[str] = []
    for place in places:
        old = thousand(before[place][rate]["value"])
        whom = f"{before[place]['attribute']} {before[place]['group']}"
        whom = f"Of 1,000 with {whom}, " if parts else f"Of 1,000 people with {whom}{among}, "
        get = "do" if parts else f"get {chosen}"
        if step is None:
            parts.append(f"{whom}{old:,} {get}.")
            continue
        new = thousand(step["groups"][place][rate]["value"])
        alone = "" if parts else " than with the model alone"
        parts.append(f"{whom}{new:,} {get}, {difference(new - old)}{alone}.")
    return f"{' '.join(parts)}{some}"


def _costs(summary: Mapping[str, Any], step: Mapping[str, Any] | None) -> str:
    accuracy = summary["base"]["accuracy"]
    if accuracy is None or accuracy["value"] is None:
        return "There are no labels to compare with."
    old = thousand(accuracy["value"])
    if step is None:
        return f"Of 1,000 decisions, {old:,} are right."
    new, changed = thousand(step["accuracy"]["value"]), thousand(step["flipped"] / summary["rows"])
    return f"Of 1,000 decisions, {changed:,} change, and {new:,} are right, {difference(new - old)} than before."


def _sure(summary: Mapping[str, Any], step: Mapping[str, Any] | None) -> str:
    state = summary["base"] if step is None else step
    verdict = state["verdicts"][state["worst"]]
    gap, level = verdict["gap"], f"{100 * summary['confidence']:.3g}"
    if gap["value"] is None:
        return "Insufficient evidence: a group has no rows to count."
    end = {
        "pass": "within what was required",
        "fail": "more than what was required",
        "insufficient evidence": "so more people are needed to tell",
    }[verdict["outcome"]]
    about = "" if len(state["verdicts"]) == 1 else f" in {words(verdict['criterion'])}"
    span = f"among people like these, the gap{about} is {interval(gap)} in 100 with {level}% confidence, {end}"
    return f"{verdict['outcome'].capitalize()}: {span}."


def thousand(share: float) -> int:
    """Return a share as people out of a thousand."""
    return round(1000 * share)


def difference(amount: int) -> str:
    """Return a difference of counts in words."""
    return f"{abs(amount):,} {'more' if amount > 0 else 'fewer'}" if amount else "no more and no fewer"


def listed(parts: Sequence[str]) -> str:
    """Return texts as a list in a sentence."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def shortage(found: Mapping[str, Any] | None) -> str:
    """Return how many rows would settle an undecided verdict."""
    if found is None:
        return ""
    if found["cell_needed"] is None:
        return "The gap is so close to the tolerance that more rows are not expected to settle it."
    where = "all rows" if found["group"] is None else f"the group {found['group']}"
    if found["label"] is not None:
        where += f" with a {('negative', 'positive')[found['label']]} label"
    if found["rows_needed"] is None:
        return f"There are {found['cell_rows']:,} rows of {where}; start with {found['cell_needed']:,}."
    return (
        f"About {found['rows_needed']:,} rows of this mix would settle it: {found['cell_needed']:,} of"
        f" {where}, of which there are now {found['cell_rows']:,}."
    )


def proof(learned: Mapping[str, Any] | None) -> str:
    """Return what the search proved about a rule."""
    if learned is None:
        return ""
    better = "more accurate" if learned["objective"] == ACCURACY else f"better in {learned['objective']}"
    bound = learned["upper_bound"]
    size = "" if bound is None else points(bound - learned["utility"], 2)
    text = PROOFS.get(learned["status"], "").format(better=better, size=size)
    if learned["objective"] != ACCURACY:
        text = f"Its {learned['objective']} is {learned['utility']:.4f} on the rows it was learnt from. {text}"
    return text


def mixed_rules(mixture: Mapping[str, Any]) -> str:
    """Return between how many rules a mixture draws: with strata, in each of them."""
    if not mixture["strata"]:
        return f"{len(mixture['rules'])} rules"
    counts = [len(each["weights"]) for each in mixture["strata"]]
    most = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{max(counts)}"
    return f"{most} rules in each of {len(counts)} strata"


def lots(summary: Mapping[str, Any], step: Mapping[str, Any]) -> list[str]:
    """Return a sentence on random draws: that they are used, or what a deterministic rule costs."""
    found = []
    if step["mixture"] is not None:
        found.append(
            f"It is randomized between {mixed_rules(step['mixture'])}: {step['mixture']['by_lot']:,} of"
            f" {summary['rows']:,} rows depend on a random draw, which is determined by the scores here."
        )
    if step["determinism"] is not None:
        cost = points(step["determinism"]["cost"], 2)
        found.append(f"The best randomized mixture of rules is better by {cost} points there: the cost of determinism.")
    return found


def price(base: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    """Return how the accuracy differs from that of the model alone."""
    amount = base["accuracy"]["value"] - step["accuracy"]["value"]
    return f"{points(abs(amount), 2)} points {'less' if amount > 0 else 'more'} than" if amount else "the same as"


def share_changed(flips: Mapping[str, Any]) -> str:
    """Return the share of a group whose decisions change."""
    return percent((flips["to_positive"] + flips["to_negative"]) / flips["rows"] if flips["rows"] else None)
