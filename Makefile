# SAGE: `make demo` sets up and runs the main job; `make test` sets up and runs the tests.

VENV ?= .venv
BIN := $(VENV)/bin
# The first of these that runs and is recent enough.
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PROMPT ?= Identify a novel research hypothesis linking tertiary lymphoid structures (TLS) and genes in bladder cancer
WORKERS ?= 2

.PHONY: setup demo test check format clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "SAGE needs Python 3.11 or later; set PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt pip
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/sage run "$(PROMPT)" --cohort demo --reasoner rules --hypotheses 2 --auto-approve

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
