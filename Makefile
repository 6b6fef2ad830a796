# One command for each promise, the same by hand and in CI.
# Everything runs from .venv, which each target makes when it is not there.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet --constraint constraints.txt

.PHONY: demo test test-long lint types bench browser clean

demo: .venv/installed
	$(BIN)/python -m evenhand.demo

test: .venv/installed-dev browser
	$(BIN)/python -m ruff check src tests benchmarks
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -n 2 --ignore=tests/long

test-long: .venv/installed-dev
	$(BIN)/python -m pytest tests/long

lint: .venv/installed-dev
	$(BIN)/python -m ruff check src tests benchmarks
	$(BIN)/python -m ruff format --check src tests benchmarks

types: .venv/installed-dev
	$(BIN)/python -m mypy

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks

# The report is tested in a real browser.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { echo "Installing chromium for the report's tests" && apt-get -qq update && apt-get -qq install -y chromium chromium-driver >/dev/null; } \
	|| echo "There is no chromium and chromedriver here: the report's browser tests will fail. Install them by hand."

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit("evenhand needs Python 3.11 or newer, and $(PYTHON) is older: say make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "Making the virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@touch .venv/made

.venv/installed: .venv/made pyproject.toml constraints.txt
	@echo "Installing evenhand"
	@$(PIP) --editable '.[cli,report]'
	@touch .venv/installed

.venv/installed-dev: .venv/made pyproject.toml constraints.txt
	@echo "Installing evenhand and its development tools"
	@$(PIP) --editable '.[dev]'
	@touch .venv/installed-dev
