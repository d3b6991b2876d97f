# What people type. Everything sets itself up; the first run makes .venv and installs into it.
#
#   make demo       a small fleet, its stuck gangs, why they are stuck and where they fit
#   make test       fast tests and doctests
#   make lint       formatting, lint, types, import rules
#   make bench      speed, on fixed seeds
#   make install    only the set-up
#   make clean      remove what was built, .venv included

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test lint bench clean

help:
	@sed -n 's/^#   //p' Makefile

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("gangplan needs Python 3.11 or later; set PYTHON=" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(STAMP)
	@PATH="$(abspath $(BIN)):$$PATH" bash docs/demo.sh

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not slow and not gpu and not ray'
	$(BIN)/python -m pytest --doctest-modules topology data optimizer ray_jobs gangplan

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m bench.run

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	rm -rf .import_linter_cache bench/out $(VENV)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
