# Each target sets up what it needs: on a fresh machine `make demo` or `make test` is the only command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The machine's cores, shared fairly: JOBS test processes with one thread each.
# A file stays in one process, so that what its tests share is set up once.
JOBS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test slow more check fix bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.ready ## train with full data and with InfoBatch, compare (ARGS="--epochs 8 ...")
	$(BIN)/infobatch demo $(ARGS)

test: $(VENV)/.ready ## run the tests and the examples in docstrings (ARGS="-k plan")
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow" $(ARGS)

slow: $(VENV)/.ready ## run the slow kinds: browsers, kills, many processes, whole trainings
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow $(ARGS)

more: $(VENV)-more/.ready ## run the tests of Ultralytics, fastai, Keras and others, in an environment of their own
	OMP_NUM_THREADS=1 $(VENV)-more/bin/python -m pytest -n $(JOBS) --dist loadfile -W ignore::DeprecationWarning tests/more $(ARGS)

check: $(VENV)/.ready ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(VENV)/.ready ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready ## measure overhead and scale
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove the environment and everything built
	rm -rf $(VENV) $(VENV)-more build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name '*.egg-info' -o -name __pycache__ | xargs rm -rf

# torch and everything that depends on it go into one pip command with the constraints: resolved apart,
# another torch build and gigabytes of GPU packages would come along.
$(VENV)/.ready: pyproject.toml constraints.txt tools/torchvision_on_cpu.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -c constraints.txt -e ".[dev]"
	$(BIN)/python tools/torchvision_on_cpu.py
	@touch $@

$(VENV)-more/.ready: pyproject.toml constraints.txt tools/torchvision_on_cpu.py
	test -x $(VENV)-more/bin/python || $(PYTHON) -m venv $(VENV)-more
	$(VENV)-more/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt -e ".[more]"
	$(VENV)-more/bin/python tools/torchvision_on_cpu.py
	@touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(PIP) install --quiet -c constraints.txt -e ".[dev,docs]"
	@touch $@
