"""The promise at full length: 1,000 independent fits for each criterion and each of three sample sizes."""

import pytest
from scipy import stats

from promise import SIZES, study

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
