"""The gallery: every script runs, is short, and its pictures are in the documentation."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "drawing")


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    yield importlib.import_module
    for name in [*SCRIPTS, "drawing"]:
        # The classifier that several pictures share is kept.
        if name != "adult":
            sys.modules.pop(name, None)


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_draws_the_pictures_that_the_documentation_shows(name, gallery, tmp_path):
    module = gallery(name)
    with threadpool_limits(1):
        pictures = module.pictures()
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for title, chart in pictures.items():
        gallery("drawing").finish(chart).save(tmp_path / f"{title}.svg")
        drawn = (tmp_path / f"{title}.svg").read_text(encoding="utf-8")
        committed = (ROOT / f"docs/images/gallery/{title}.svg").read_text(encoding="utf-8")
        assert _words(drawn) == _words(committed), f"python examples/{name}.py draws it anew"
        assert f"images/gallery/{title}.svg" in pages


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_is_short(name):
    assert len((ROOT / f"examples/{name}.py").read_text(encoding="utf-8").splitlines()) < 60


def _words(svg: str) -> list[str]:
    """Return the words of a picture without numbers, which follow the last digits of the data."""
    words = (re.sub(r"[\d.,%−-]+", "#", text) for text in re.findall(r"<text[^>]*>([^<]+)</text>", svg))
    return list(dict.fromkeys(words))


def test_the_gallery_offers_every_script_for_download():
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert set(re.findall(r'href="examples/(\w+)\.py" download', page)) == {*SCRIPTS, "drawing"}
