from __future__ import annotations

from evenhand.demo import run_demo


def test_the_demonstration_narrows_the_gaps_and_writes_its_report(tmp_path):
    said: list[str] = []
    found = run_demo(tmp_path / "report.html", rows=12_000, say=said.append)
    text = "\n".join(said)
    for criterion, after in found.after.items():
        assert after.verdicts[0].criterion == criterion
        assert found.rules[criterion].solution_.status == "optimal"
    assert found.after["demographic_parity"].verdicts[0].gap.value < 0.1
    assert found.before.accuracy.value - found.after["equalized_odds"].accuracy.value < 0.02
    assert "the price is" in text
    assert "held-out rows" in text
    assert str(found.report.resolve()) in text
    page = found.report.read_text(encoding="utf-8")
    assert "Female" in page
    assert len(page) < 2_000_000
