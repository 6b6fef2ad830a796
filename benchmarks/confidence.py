"""What a confidence costs and keeps, against the number of rows: ``python -m benchmarks confidence``."""

from __future__ import annotations

from tests.promise import SIZES, TOLERANCES, study

FITS, LEVEL = 200, 0.9


def main(fits: int = FITS) -> None:
    """Print a line for each criterion and size, with and without the promise."""
    print(f"{fits} independent fits on the synthetic distribution with its true probabilities, confidence {LEVEL}")
    print(
        f"{'criterion':20}{'tolerance':>10}{'rows':>7}{'violated':>10}{'without':>9}{'no rule':>9}{'accuracy':>10}",
        end="",
    )
    print(f"{'without':>9}{'gap':>8}{'without':>9}")
    for criterion, sizes in SIZES.items():
        for n in sizes:
            promised, plain = study(criterion, n, fits, LEVEL), study(criterion, n, fits, None)
            print(
                f"{criterion:20}{TOLERANCES[criterion]:>10g}{n:>7}{promised.violated:>10.3f}{plain.violated:>9.3f}"
                f"{promised.refused:>9.3f}{promised.accuracy:>10.4f}{plain.accuracy:>9.4f}{promised.gap:>8.4f}"
                f"{plain.gap:>9.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
