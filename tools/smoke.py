"""What an installed wheel must be able to do with nothing but its core dependencies: ``make dist``."""

from __future__ import annotations

import importlib.util

import numpy as np
from sklearn.linear_model import LogisticRegression

import evenhand as eh

data = eh.datasets.load_adult()
take = np.random.default_rng(0).choice(len(data.y), 4_000, replace=False)
fair = eh.FairClassifier(LogisticRegression(max_iter=300), tolerance=0.05, cv=3, random_state=0)
fair.fit(data.X[take], data.y[take], sensitive_features=data.sensitive["sex"][take])
rest = np.setdiff1d(np.arange(len(data.y)), take)
decided = fair.predict(data.X[rest])
gap = eh.metrics.equalized_odds_difference(data.y[rest], decided, sensitive_features=data.sensitive["sex"][rest])
assert eh.Rule.from_json(fair.rule_.to_json()) == fair.rule_
extras = [name for name in ("altair", "cyclopts", "torch", "duckdb", "pyspark") if importlib.util.find_spec(name)]
print(f"evenhand {eh.__version__}: accuracy {np.mean(decided == data.y[rest]):.3f}, equalized odds gap {gap:.3f}")
print(f"extras installed: {', '.join(extras) or 'none'}")
