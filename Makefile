# make demo   set everything up, run the main job on the embedded phantom, print the report's path
# make test   set everything up, run all tests
# make test-fast   set everything up, run the quick tests: the inner loop
# make coverage   run all tests and show the lines that they do not reach; this takes more than twice as long
# make lint   style and types
# make wheel   wheel and source distribution in dist/; the same commit gives the same bytes
# make test-oldest   the oldest packages that pyproject.toml allows, in .venv-oldest, and the tests of files, figures and commands
# make docs   the documentation site with its search, build/site; for its gallery, small networks are trained
# One environment, .venv, made again when pyproject.toml, constraints.txt or requirements.lock is newer.
# make LOCKED=1 demo (test, lint)   the environment from requirements.lock: every file must have the hash that stands there

PYTHON ?= python3
VENV := .venv
unexport PYTHONDONTWRITEBYTECODE # kept byte code halves the 40 s in which each worker reads the tests
READY := $(VENV)/.ready

.PHONY: demo test test-fast test-oldest coverage lint wheel docs clean

demo: $(READY)
	$(VENV)/bin/usvit cv

test: $(READY)
	$(VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal

test-fast: $(READY)
	$(VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow"

coverage: $(READY)
	$(VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal --cov

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

wheel: $(READY)
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(VENV)/bin/python -m build --no-isolation --outdir dist .

# The oldest of what usvit names itself, with the newest of what that needs; uv finds it, and Python 3.11 has files of all.
OLDEST := .venv-oldest
OLDEST_TESTS := tests/test_demo.py tests/config tests/records tests/cli tests/data/io tests/metrics
test-oldest:
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet uv
	$(OLDEST)/bin/uv pip compile --quiet pyproject.toml --extra node --extra explain --extra export --extra imagenet \
	  --resolution lowest-direct --no-header --no-annotate --output-file $(OLDEST)/oldest.txt
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --requirement $(OLDEST)/oldest.txt \
	  hypothesis jsonschema networkx pytest pytest-xdist statsmodels webdataset
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --no-deps --editable .
	$(OLDEST)/bin/python -m pytest -n auto --maxprocesses 4 -m "not slow" --ignore tests/cli/test_reference.py $(OLDEST_TESTS)

docs: $(READY)
	[ -d build/site-extra/gallery ] || $(VENV)/bin/python site/gallery.py build/site-extra/gallery
	$(VENV)/bin/python -m sphinx -W -n --keep-going -q -c site . build/site
	@echo build/site/index.html

$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "usvit needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
else
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
endif
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) dist build
