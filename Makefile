# SAGE: `make demo` sets up and runs the main job; `make test` sets up and runs the tests.

VENV ?= .venv
BIN := $(VENV)/bin
# The optional export to SpatialData moves a pin, so its packages lie over those of VENV.
SPATIAL ?= .venv-spatialdata
# The first of these that runs and is recent enough.
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PROMPT ?= Identify a novel research hypothesis linking tertiary lymphoid structures (TLS) and genes in bladder cancer
WORKERS ?= 2

.PHONY: setup spatialdata demo test test-spatialdata check format clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "SAGE needs Python 3.11 or later; set PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt pip
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

spatialdata: $(SPATIAL)/.ready

$(SPATIAL)/.ready: $(VENV)/.ready constraints-spatialdata.txt
	$(BIN)/python -m venv --without-pip $(SPATIAL)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		>"$$($(SPATIAL)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	grep -v '^python-dateutil==' constraints.txt | cat - constraints-spatialdata.txt \
		>$(SPATIAL)/constraints.txt
	$(SPATIAL)/bin/python -m pip install -q --disable-pip-version-check \
		-c $(SPATIAL)/constraints.txt spatialdata
	@touch $@

demo: setup
	$(BIN)/sage run "$(PROMPT)" --cohort demo --reasoner rules --hypotheses 2 --auto-approve

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-spatialdata: spatialdata
	$(SPATIAL)/bin/python -m pytest -n $(WORKERS) tests/mcp_servers/test_sl_spatialdata.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(SPATIAL) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
