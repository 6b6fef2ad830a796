"""The promise at full length: 1,000 independent fits for each criterion and each of three sample sizes.

And 400 fits at confidence 0.95 at the sizes where rows only just suffice, and a choice among rules could do most harm.
"""

import pytest
from scipy import stats

from promise import SIZES, TOLERANCES, study

FITS, LEVEL = 1000, 0.9


@pytest.mark.parametrize(("criterion", "n"), [(name, n) for name, sizes in SIZES.items() for n in sizes])
def test_the_promise_is_kept_at_every_size(criterion, n, capsys):
    promised, plain = study(criterion, n, FITS, LEVEL), study(criterion, n, FITS // 5, None)
    with capsys.disabled():
        print(
            f"\n{criterion}, {n} rows: violated {promised.violated:.3f} (without confidence {plain.violated:.3f}),"
            f" no rule {promised.refused:.3f}, accuracy {promised.accuracy:.4f} (without {plain.accuracy:.4f})"
        )
    assert promised.violated <= stats.binom.ppf(0.999, FITS, 1.0 - LEVEL) / FITS
    assert plain.violated > 0.25


@pytest.mark.parametrize(
    ("criterion", "n", "tolerance", "refused"),
    [
        ("demographic_parity", 2000, 0.05, 0.7),
        ("demographic_parity", 5000, 0.05, 0.1),
        ("equalized_odds", 2000, 0.1, 0.9),
        ("equalized_odds", 5000, 0.1, 0.1),
    ],
)
def test_the_promise_is_kept_where_rows_only_just_suffice(criterion, n, tolerance, refused, monkeypatch, capsys):
    monkeypatch.setitem(TOLERANCES, criterion, tolerance)
    found = study(criterion, n, 400, 0.95)
    with capsys.disabled():
        print(f"\n{criterion}, {n} rows, {tolerance}: violated {found.violated:.3f}, no rule {found.refused:.3f}")
    assert found.violated <= stats.binom.ppf(0.999, 400, 0.05) / 400
    assert found.refused <= refused
