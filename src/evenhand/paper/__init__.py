"""The paper's evidence: its data sets, models, baselines and experiments."""
