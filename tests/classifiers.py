"""Classifiers that tests fit."""

from __future__ import annotations

import evenhand as eh

PAPER = {"criterion": "equalized_odds", "safety": 0.0, "ensemble": False}


def paper_classifier(estimator, **options) -> eh.FairClassifier:
    """Return a classifier with the paper's rule at the tolerance itself, and one final model."""
    return eh.FairClassifier(estimator, **{**PAPER, **options})
