from __future__ import annotations

from evenhand.demo import run_demo


def test_the_demonstration_narrows_the_gap_and_writes_its_report(tmp_path):
    said: list[str] = []
    found = run_demo(tmp_path / "report.html", rows=12_000, say=said.append)
    text = "\n".join(said)
    before, after = found.before.verdicts[0], found.after.verdicts[0]
    assert before.criterion == after.criterion == "demographic_parity"
    assert before.outcome == "fail"
    assert after.gap.value < 0.1
    assert found.rule.solution_.status == "optimal"
    assert found.before.accuracy.value - found.after.accuracy.value < 0.02
    assert "the price is" in text
    assert "held-out rows" in text
    assert str(found.report.resolve()) in text
    page = found.report.read_text(encoding="utf-8")
    assert "Female" in page
    assert len(page) < 2_000_000
