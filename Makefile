# The first target that needs it sets up .venv, so a fresh checkout needs nothing but Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVER := $(VENV)/.server
CLUSTER := $(VENV)/.cluster
READY := $(VENV)/.ready
PIP := -m pip install -qq --disable-pip-version-check
UV := uv==0.13.7  # resolves the lock file
CYCLONEDX := cyclonedx-bom==7.5.0  # writes the SBOM
INSIDE := tests/architecture tests/unit tests/property tests/contract  # suites that run in the test process
# Most tests wait more than they compute, so three run at a time. tests/conftest.py has the order of the files.
PYTEST := $(BIN)/pytest -m "not long" --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo demo-cluster dashboard screenshots test test-wheel coverage test-versions test-long lint docs tidy bench lock sbom clean

help:
	@echo "make demo           show a noisy neighbour in the browser, a crash and a Spark report in the terminal"
	@echo "make demo-cluster   restart three nodes over one PostgreSQL while work goes on, then kill one"
	@echo "make dashboard      show a noisy neighbour in the browser only"
	@echo "make test           run the whole gate: lint, types, imports, docs, wheel, tests"
	@echo "make coverage       print how much of each package the in-process tests execute"
	@echo "make test-versions  run the in-process tests on every supported Python on this machine"
	@echo "make test-long      run the tests that take minutes: killed Spark drivers, stopped cluster nodes"
	@echo "make docs           build the documentation site into site/"
	@echo "make tidy           record tidiness counts that have shrunk"
	@echo "make bench          run the benchmarks"
	@echo "make screenshots    update the dashboard pictures in docs/images (needs Chromium)"
	@echo "make setup          create .venv only, from lock.txt with hashes"
	@echo "make lock           resolve lock.txt after a change of dependencies; ARGS=--upgrade takes newer versions"
	@echo "make sbom           write sbom.cdx.json, a CycloneDX bill of materials, from lock.txt"

setup: $(READY)

# The server and its dashboard, which are there in seconds. The demo installs Spark beside its first pictures.
$(SERVER): pyproject.toml lock.txt tools/install_locked.py
	@echo "Installing Fairlane and its server into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python tools/install_locked.py server
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# What the nodes of the cluster demo need besides; its processes are started by tests/kit, which needs nothing more.
$(CLUSTER): pyproject.toml lock.txt | $(SERVER)
	@$(BIN)/python tools/install_locked.py postgres
	@touch $@

$(READY): pyproject.toml lock.txt | $(SERVER)
	@echo "Installing Spark, Java and the developer tools into $(VENV): 2 GB, minutes ..."
	@$(BIN)/python tools/install_locked.py dev
	@touch $@

# 3.11.5 is the oldest Python that every developer tool supports. Versions that are in the file already are kept.
lock:
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/python $(PIP) $(UV)
	@$(VENV)-lock/bin/uv pip compile --quiet pyproject.toml --extra dev --extra whatif --universal --python-version 3.11.5 \
		--generate-hashes --annotation-style line --no-emit-index-url --custom-compile-command "make lock" \
		--output-file lock.txt $(ARGS)

sbom:
	@$(PYTHON) -m venv $(VENV)-sbom
	@$(VENV)-sbom/bin/python $(PIP) $(CYCLONEDX)
	@$(VENV)-sbom/bin/cyclonedx-py requirements lock.txt --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --output-file sbom.cdx.json

demo: $(SERVER)
	@$(BIN)/python examples/demo.py --install

demo-cluster: $(CLUSTER)
	@$(BIN)/python -m examples.cluster

dashboard: $(SERVER)
	@$(BIN)/python examples/busy_server.py

screenshots: $(READY)
	@$(BIN)/python tools/make_screenshots.py

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test-wheel: $(READY)
	$(BIN)/python tools/check_versions.py --smoke

test: lint docs test-wheel
	@$(BIN)/python tools/install_servers.py
	$(PYTEST) tests

# A tracer slows down what is timed, so only the in-process suites run under it, and not in the gate.
coverage: $(READY)
	$(PYTEST) $(INSIDE) --cov --cov-report=
	$(BIN)/python tools/print_coverage.py

test-versions: $(READY)
	$(BIN)/python tools/check_versions.py

test-long: $(READY)
	@$(BIN)/python tools/install_servers.py
	$(BIN)/pytest -m long

tidy: $(READY)
	$(BIN)/python -m tests.architecture.tidiness --lower

bench: $(READY)
	$(BIN)/python -m benchmarks.scheduler
	$(BIN)/python -m benchmarks.broker
	$(BIN)/python -m benchmarks.server
	$(BIN)/python -m benchmarks.neighbours
	$(BIN)/python -m benchmarks.dashboard
	$(BIN)/python -m benchmarks.stores
	$(BIN)/python -m benchmarks.payloads
	$(BIN)/python -m benchmarks.repeats
	$(BIN)/python -m benchmarks.tasks
	$(BIN)/python -m benchmarks.soak
	$(BIN)/python -m benchmarks.spark
	$(BIN)/python -m benchmarks.spark_whatif_twin
	$(BIN)/python -m benchmarks.whatif_reality

clean:
	rm -rf $(VENV) $(VENV)-* site .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
