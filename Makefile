# SAGE: `make demo` sets up and runs the main job; `make test` sets up and runs the tests.

VENV ?= .venv
BIN := $(VENV)/bin
# The first of these that runs and is recent enough.
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PROMPT ?= Identify a novel research hypothesis linking tertiary lymphoid structures (TLS) and genes in bladder cancer
# More than cores: some tests wait for other programs.
WORKERS ?= 3

.PHONY: setup hashes demo test test-fast check docs collect format clean

setup: $(VENV)/.ready

PIP = $(BIN)/python -m pip install -q --disable-pip-version-check
# Ten times as fast as pip; pip takes over where uv cannot reach the index that pip is set up for.
UV = $(if $(PIP_INDEX_URL),UV_DEFAULT_INDEX=$(PIP_INDEX_URL)) $(BIN)/uv pip install -q --python $(BIN)/python

# torch comes from where its build for this machine is, and so without a hash; all else with one.
$(VENV)/.ready: pyproject.toml constraints.txt constraints.hashes.txt
	@test -n "$(PYTHON)" || { echo "SAGE needs Python 3.11 or later; set PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' constraints.hashes.txt > $(VENV)/uv.txt
	$(PIP) --no-deps --require-hashes -r $(VENV)/uv.txt
	$(UV) --no-deps --require-hashes -r constraints.hashes.txt || \
		$(PIP) --no-deps --require-hashes -r constraints.hashes.txt
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation -e '.[all]'
	@# Programs in a sandbox cannot write bytecode: each would compile what it imports anew.
	@cd $(VENV)/lib/python3*/site-packages && ../../../bin/python -m compileall -q -j 0 -x /tests/ \
		numpy pandas scipy lifelines statsmodels matplotlib $(CURDIR)/validation $(CURDIR)/sage
	@touch $@

# The file with the hashes anew, after a change of dependencies or pins; needs uv (pip install uv).
hashes:
	mkdir -p build
	printf '%s\n' hatchling editables | uv pip compile -q --universal --generate-hashes --no-header \
		--no-annotate --python-version 3.11 --default-index https://pypi.org/simple \
		-c constraints.txt --extra all --extra dev pyproject.toml - -o build/hashes.txt
	{ sed -n '/^#/p' constraints.hashes.txt; \
	  awk '/^[a-z]/ { keep = !/^(torch|triton|nvidia-|cuda-)/ } keep' build/hashes.txt; } > build/new.txt
	mv build/new.txt constraints.hashes.txt

demo: setup
	$(BIN)/sage run "$(PROMPT)" --cohort demo --reasoner rules --hypotheses 2 --auto-approve

# What fails beside others runs once more alone: a failure that is gone then is printed as flaky.
test: setup
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder; code=$$?; [ $$code -eq 0 ] && exit 0; \
	[ $$code -eq 1 ] || exit $$code; \
	echo "once more, alone, what failed:"; $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -v \
	&& echo "flaky: the tests above failed beside others and passed alone; mend them"

# While working: without what takes over .3 s (tests/slow.txt) or needs other programs or data, and
# without attacks, slides and all whole runs but one. `pytest --record-slow` writes the list anew.
SLOW := slow or docker or bubblewrap or browser or ray or postgres or slides or shared
test-fast: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not ($(SLOW))" \
		--ignore=tests/adversary --ignore-glob="*/mcp_servers/test_sl_*"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/supply_chain.py

# The references anew from the code, then the site: plain files in site/, nothing loaded from elsewhere.
docs: setup
	$(PIP) -c constraints.txt mkdocs mkdocs-material
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Compiles the tests once, before several workers would each do so.
collect: setup
	$(BIN)/python -m pytest --collect-only >/dev/null

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
