"""Common code of the examples: colours, and the folder of their pictures."""

import sys
from pathlib import Path

import altair as alt

BEFORE, AFTER, OTHER, WARM = "#9aa5ab", "#00796b", "#3f51b5", "#c62828"
FOLDER = Path(__file__).parents[1] / "docs/images/gallery"


def finish(chart: alt.Chart) -> alt.Chart:
    """Return the chart on white, with uniform font sizes."""
    return chart.configure(background="white", padding=12).configure_axis(
        labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#eceff1"
    )


def save(pictures: dict[str, alt.Chart]) -> None:
    """Write each picture as SVG, to the folder given on the command line or to the documentation's."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in pictures.items():
        finish(chart).save(folder / f"{name}.svg")
