# The verbs of this project. CI runs the same ones (.ci/run), so what passes here passes there.
#   make demo    set up, serve an environment, train a small model on it over the wire, show the result
#   make test    set up, run the tests that a change can affect, with a sample of each long matrix
#   make test-all  set up, run every test, also each suite of tests/suites.toml
#   make rotate  set up, run the parts of the suites whose last green run is oldest, for 45 minutes (MINUTES=…)
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo hub wires test test-all suite rotate check format bench bench-guard integrations venv peers clean docs generate
.NOTPARALLEL:

# The first Python here that is new enough; `make PYTHON=/path/to/python …` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Container images often forbid Python to keep compiled modules; every process of a test would compile all it imports.
export PYTHONDONTWRITEBYTECODE :=
RUN := .venv/bin/python
ARGS ?=
# Tests wait for processes more than they compute, so one more at a time than there are cores; 0 for no others.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))')

help:
	@sed -n 's/^#   //p' Makefile
	@echo "make suite   list the parts of the suites and their green runs;  make suite NAME=fuzz  runs a suite or part"
	@echo "make check   ruff, formatting, import rules, types, stale generated files;  ARGS=--fast  without mypy and pyright"
	@echo "make hub     start a hub with all of our environments on this machine, and print its address"
	@echo "make wires   play three environments over every wire with two policies, and compare"
	@echo "make format  fix what ruff can fix"
	@echo "make generate  rewrite what is generated: schemas, spec, transcripts, sync client, docs"
	@echo "make docs    build the documentation as a site, with every link checked: site/index.html"
	@echo "make bench   measure, side by side with the peers, and write benchmarks/RESULTS.md"
	@echo "make bench-guard  compare the CPU time of five figures with the commit before; BASE=REV chooses another"
	@echo "make integrations  run the trainers and evaluators of others against our adapters, and write their table"
	@echo "make peers   install the peers' own clients and servers under .peers/ (tests of interoperation need them)"
	@echo "make venv    only set up .venv"
	@echo "make clean   remove .venv, .peers and every cache"
	@echo "  ARGS='…' is passed on, as in: make test ARGS='tests/packaging -x'"

venv:
	@test -n "$(PYTHON)" || { echo "Ludus needs Python 3.11 or newer; none was found on PATH"; exit 1; }
	@$(PYTHON) scripts/bootstrap.py

demo: venv
	@$(RUN) scripts/demo.py $(ARGS)

hub: venv
	@$(RUN) scripts/run_hub.py $(ARGS)

wires: venv
	@$(RUN) scripts/play_wires.py $(ARGS)

test: venv
	@$(RUN) $(if $(ARGS),-m pytest -n $(WORKERS) --dist loadfile $(ARGS),scripts/run_tests.py --workers $(WORKERS))

test-all: venv
	@$(RUN) scripts/run_tests.py --everything --workers $(WORKERS)
	@$(RUN) scripts/suites.py --all --workers $(WORKERS)

rotate: venv
	@bash scripts/system_tools.sh --all
	@$(RUN) scripts/peers.py --all
	@$(RUN) scripts/suites.py --workers $(WORKERS) --rotate $(MINUTES)

suite: venv
	@$(RUN) scripts/suites.py --workers $(WORKERS) $(NAME)

check: venv
	@$(RUN) scripts/check.py $(ARGS)

format: venv
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

docs: venv
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict
	@echo "open site/index.html"

generate: venv
	@$(RUN) scripts/check.py --write

bench: venv
	@$(RUN) scripts/peers.py
	@$(RUN) benchmarks/run.py $(ARGS)

bench-guard: venv
	@$(RUN) benchmarks/guard.py --base "$(or $(BASE),HEAD~1)" $(ARGS)

integrations: venv
	@$(RUN) scripts/peers.py --all
	@$(RUN) scripts/integrations.py $(ARGS)

peers: venv
	@$(RUN) scripts/peers.py $(ARGS)

clean:
	rm -rf .venv .peers site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
