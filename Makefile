# The verbs of this repository; `make` alone lists them. Each sets up what it needs by itself (scripts/setup).

PYTHON_DIRS := src tests
BIN := .venv/bin
# Tests that also run against the installed wheel, and those that are quick enough to run after every change.
QUICK := -m "not slow"

SETUP_DEPENDS := pyproject.toml constraints.txt scripts/setup scripts/find-python scripts/system-packages.txt \
	tests/interop/package.json

.DEFAULT_GOAL := help
.PHONY: help setup serve demo pipeline-demo test quick lint types format bench build clean
.NOTPARALLEL:

help:  ## list these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/ready-to-serve: $(SETUP_DEPENDS)
	@scripts/setup serve

.venv/ready-to-test: $(SETUP_DEPENDS)
	@scripts/setup test

setup: .venv/ready-to-test  ## make .venv with all that is needed to change Penstock

serve: .venv/ready-to-serve  ## start the broker, until Ctrl-C (make serve ARGS="--help" tells what it can be told)
	@$(BIN)/penstock serve $(ARGS)

demo: .venv/ready-to-serve  ## see the embedded broker at work, step by step
	@$(BIN)/python -m penstock.demo $(ARGS)

pipeline-demo: .venv/ready-to-test  ## let traffic flow through a broker for a minute, and see the pipeline's report
	@$(BIN)/python -m penstock.pipeline.jobs.demo $(ARGS)

test: lint types  ## check everything, then run the whole test suite (make test ARGS="-k words" for a part)
	@$(BIN)/python -m pytest $(ARGS)

quick: .venv/ready-to-test  ## run the tests that take less than a second each, without the checks
	@$(BIN)/python -m pytest -q $(QUICK) $(ARGS)

lint: .venv/ready-to-test  ## check style, formatting and who imports whom
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/lint-imports --no-logo

types: .venv/ready-to-test  ## check types, strictly
	@$(BIN)/mypy

format: .venv/ready-to-test  ## format, and repair what can be repaired by itself
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: .venv/ready-to-test  ## measure how many messages a second this machine passes through an embedded broker
	@$(BIN)/python bench/embedded.py $(ARGS)

build: .venv/ready-to-test  ## build the wheel and the source distribution into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist

clean:  ## remove what the other verbs made, .venv included
	rm -rf .venv build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(PYTHON_DIRS) -name __pycache__ -type d -prune -exec rm -rf {} +
