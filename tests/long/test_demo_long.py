"""The demonstration's verdict is not the luck of one seed."""

from __future__ import annotations

from evenhand.demo import run_demo


def test_the_rule_passes_for_at_least_eight_of_ten_seeds(tmp_path):
    outcomes = []
    for seed in range(10):
        found = run_demo(tmp_path / "report.html", random_state=seed, say=lambda text: None)
        assert found.before.verdicts[0].outcome == "fail"
        outcomes.append(found.after.verdicts[0].outcome)
    assert outcomes.count("pass") >= 8
