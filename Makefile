# One command for each promise, the same by hand and in CI.
# Everything runs from .venv, which each target makes when it is not there.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet --constraint constraints.txt

.PHONY: demo test test-long test-lowest fuzz mutants lint types bench docs dist licences browser java mariadb node clean

demo: .venv/installed
	$(BIN)/python -m evenhand.demo

test: .venv/installed-dev browser java mariadb
	$(MAKE) --no-print-directory lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/long

test-long: .venv/installed-dev java node
	$(BIN)/python -m pytest tests/long

# The core alone, with the oldest versions of its dependencies.
CORE_TESTS := tests/search tests/rules/test_criteria.py tests/rules/test_scores.py tests/rules/test_rule.py tests/rules/test_learn.py \
	tests/rules/test_learn_optimum.py tests/auditing/test_metrics.py tests/statistics/test_intervals.py tests/statistics/test_bounds.py \
	tests/rules/test_numerical_care.py tests/estimator/test_crossfit.py tests/estimator/test_recalibration.py

test-lowest: .venv-lowest/installed
	.venv-lowest/bin/python -m pytest -n 2 $(CORE_TESTS)

fuzz: .venv/installed-dev
	$(BIN)/python tests/fuzz/run.py --seconds 600

mutants: .venv/installed-dev
	$(BIN)/python tests/mutation/mutate.py

lint: .venv/installed-dev
	$(BIN)/python -m ruff check src tests benchmarks examples tools
	$(BIN)/python -m ruff format --check src tests benchmarks examples tools

types: .venv/installed-dev
	$(BIN)/python -m mypy

bench: .venv/installed-bench
	$(BIN)/python -m benchmarks

# The site, with warnings as errors, into site/; and its examples.
docs: .venv/installed-docs java
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m pytest tests/test_docs.py tests/test_examples.py

# A wheel and an sdist, their metadata checked, each extra tried in an empty environment.
dist: .venv/installed-dev
	rm -rf dist build
	$(BIN)/python -m hatchling build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/try_wheel.py

licences: .venv/installed-dev
	$(BIN)/python tools/licences.py > docs/licences.md

# The report is tested in a real browser.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { echo "Installing chromium for the report's tests" && apt-get -qq update && apt-get -qq install -y chromium chromium-driver >/dev/null; } \
	|| echo "There is no chromium and chromedriver here: the report's browser tests will fail. Install them by hand."

# Spark is tested on a real Java.
java:
	@command -v java >/dev/null \
	|| { echo "Installing Java for Spark's tests" && apt-get -qq update && apt-get -qq install -y openjdk-17-jre-headless >/dev/null; } \
	|| echo "There is no Java here: Spark's tests will fail. Install Java 17 or newer by hand."

# The rule's SQL is tested in a real server.
mariadb:
	@command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null \
	|| { echo "Installing MariaDB for the tests of SQL" && apt-get -qq update && apt-get -qq install -y mariadb-server >/dev/null; } \
	|| echo "There is no MariaDB here: the tests of its SQL will fail. Install mariadb-server by hand."

# Exported classifiers are run in onnxruntime-node.
node:
	@command -v npm >/dev/null \
	|| { echo "Installing Node.js for the tests of ONNX" && apt-get -qq update && apt-get -qq install -y nodejs npm >/dev/null; } \
	|| echo "There is no npm here: the tests of ONNX in Node.js will fail. Install Node.js 18 or newer by hand."

clean:
	rm -rf .venv .venv-lowest site build dist .pytest_cache .mypy_cache .ruff_cache

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit("evenhand needs Python 3.11 or newer, and $(PYTHON) is older: say make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "Making the virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@touch .venv/made

.venv/installed: .venv/made pyproject.toml constraints.txt
	@echo "Installing evenhand"
	@$(PIP) --editable '.[cli,report]'
	@touch .venv/installed

.venv/installed-docs: .venv/installed-dev
	@echo "Installing what builds the documentation"
	@$(PIP) --editable '.[dev,docs]'
	@touch .venv/installed-docs

.venv/installed-dev: .venv/made pyproject.toml constraints.txt
	@echo "Installing evenhand and its development tools"
	@$(PIP) --editable '.[dev]'
	@touch .venv/installed-dev

.venv/installed-bench: .venv/installed-dev
	@echo "Installing the peers that evenhand is compared with"
	@$(PIP) --editable '.[dev,bench]'
	@touch .venv/installed-bench

.venv-lowest/installed: pyproject.toml constraints-lowest.txt
	@$(PYTHON) -m venv .venv-lowest
	@echo "Installing the oldest supported versions in .venv-lowest"
	@.venv-lowest/bin/python -m pip --disable-pip-version-check install --quiet --quiet --constraint constraints-lowest.txt \
	--editable . altair fairlearn hypothesis pytest pytest-xdist "pandas<3" polars pyarrow
	@touch .venv-lowest/installed
