import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """A cache directory that is fetched into once in a test run."""
    return tmp_path_factory.mktemp("evenhand-data")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    directory = tmp_path / "cache"
    monkeypatch.setenv("EVENHAND_DATA", str(directory))
    return directory


@pytest.fixture
def no_pip(monkeypatch):
    """A pip that finds nothing, whatever the user's settings are."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
