# make demo   set everything up, run the main job on the embedded phantom, print the report's path
# make test   set everything up, run all tests
# make lint   style and types
# One environment, .venv, made anew when pyproject.toml or constraints.txt is newer.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test lint clean

demo: $(READY)
	$(VENV)/bin/usvit cv

test: $(READY)
	$(VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "usvit needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) dist build
