# Everything a fresh machine needs is set up in .venv by the first target that wants it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo demo-cluster dashboard screenshots test test-long lint bench clean

help:
	@echo "make demo       see a noisy neighbour in a browser, and in the terminal a queue that crashes and what Spark makes of a journal"
	@echo "make demo-cluster  see three nodes over one PostgreSQL go on with the work when one of them is killed"
	@echo "make dashboard  see a noisy neighbour in a browser, at an address that it prints"
	@echo "make test       run the whole gate: lint, types, imports, tests, examples in the docs"
	@echo "make test-long  kill Spark's drivers and workers, and stop nodes of a cluster, which takes minutes"
	@echo "make bench      run the benchmarks"
	@echo "make setup      only set up .venv"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py

demo-cluster: $(READY)
	@$(BIN)/python -m examples.cluster

dashboard: $(READY)
	@$(BIN)/python examples/busy_server.py

screenshots: $(READY)
	@$(BIN)/python tools/make_screenshots.py

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -m "not long" --numprocesses 3 --dist loadfile  # most tests wait more than they work

test-long: $(READY)
	$(BIN)/pytest -m long

bench: $(READY)
	$(BIN)/python -m benchmarks.scheduler
	$(BIN)/python -m benchmarks.broker
	$(BIN)/python -m benchmarks.server
	$(BIN)/python -m benchmarks.neighbours
	$(BIN)/python -m benchmarks.dashboard
	$(BIN)/python -m benchmarks.stores

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
