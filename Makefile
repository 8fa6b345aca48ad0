# Every command sets up what it needs on a fresh machine: an environment in .venv and the package.
PYTHON ?= python3
VENV ?= .venv
# torch by its exact version first: a range would make pip weigh builds of several gigabytes.
INSTALL = $(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all fuzz lint docs clean

demo: $(VENV)/.installed
	$(VENV)/bin/fast-r2d2 parse --file examples/sentences.txt --format pretty

PYTEST = HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses auto --dist worksteal

# The tests that are not marked `slow`, with ten examples where hypothesis draws them: about four minutes of processor
# time, and one for the lint when mypy begins anew. Each process of pytest takes 15 seconds of it to import everything.
test: $(VENV)/.installed-test lint
	$(PYTEST) --maxprocesses 4 --hypothesis-profile quick

# Every test, with all examples.
test-all: $(VENV)/.installed-test lint
	$(PYTEST) -m ""

# The fuzzers of tests/fuzz, round after round with other examples, until one fails or the time is over; pytest keeps a
# failing example in .hypothesis and tries it first in the next round.
MINUTES ?= 60
fuzz: $(VENV)/.installed-test
	end=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$end ]; do \
		HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -q -m "" tests/fuzz \
			--hypothesis-profile fuzz --hypothesis-show-statistics || exit 1; done

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

# The site, in site/: nothing is fetched, and a broken link or reference is an error (--quiet would pass over it). Pages
# open as files; the search needs a server, such as `python -m http.server --directory site`.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.py pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(INSTALL) --editable '.[test]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
