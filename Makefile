# Everything one needs to type. Recipes are thin: the work is in bin/ and in txbatch itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo up down test test-all test-fast soak lint docs docs-generate test-compose bench bench-quick bench-compare wheel release-check setup lock clean

# PYTHON=/path/to/python names the Python that .venv is made with; else bin/setup looks for one.
export PYTHON
PY := .venv/bin/python

##@ Use it
demo: setup ## run the main job for real, kill it twice on the way, print the report
	$(PY) -m txbatch.local.demo

up: setup ## start Airflow with the pipelines, on this machine alone
	$(PY) -m txbatch.local.up

down: ## stop what `up` and `demo` started, PostgreSQL too
	@if [ -x $(PY) ]; then $(PY) -m txbatch.local.down; fi

##@ Work on it
test: setup ## run the tests: every rule, button, example; PYTEST_ARGS="tests/unit -x" for some
	$(PY) $(if $(PYTEST_ARGS),-m pytest $(PYTEST_ARGS),tests/lanes.py)

test-all: setup ## run every test at its whole size; PYTEST_ARGS as above
	TXBATCH_TESTS=all $(MAKE) test

test-fast: setup ## run what needs no server, within a minute
	$(PY) tests/lanes.py tidy unit docs spouts files

soak: export TXBATCH_TESTS := all
soak: setup ## random histories, SEEDS=n of them; all cuts of a batch's life; followers that are killed; more of the model's states
	SOAK_SEEDS=24-$$((23 + $(or $(SEEDS),300))) SOAK_STRIDE=1 $(PY) -m pytest tests/soak -p no:budget --timeout 3600 -rP $(PYTEST_ARGS)
	MODEL_STATES=200000 MODEL_WALKS=1000 $(PY) -m pytest tests/model/test_states.py -p no:budget --timeout 7200
	MODEL_BATCHES=1000 $(PY) -m pytest tests/model/test_any_batches.py -p no:budget --timeout 7200
	TXBATCH_SOAK_KILLS=50 $(PY) -m pytest tests/cli/test_follow.py tests/cli/test_follow_killed.py -p no:budget --timeout 7200 -rP
	FLIGHTS_DAYS=365 $(PY) -m pytest tests/flights/test_year.py -p no:budget --timeout 7200
	DUCKDB_HISTORIES=4000 $(PY) -m pytest tests/model/test_against_duckdb.py -p no:budget --timeout 7200
	EVENT_TIMES=40000 $(PY) -m pytest tests/model/test_event_time.py -p no:budget --timeout 7200
	KEEP_WINDOWS=2000 $(PY) -m pytest tests/model/test_keep_windows.py -p no:budget --timeout 7200
	MIXED=5000 MIXED_ON_POSTGRES=200 $(PY) -m pytest tests/model/test_mixed.py -p no:budget --timeout 14400
	CORRECTIONS=200000 $(PY) -m pytest tests/model/test_corrections.py -p no:budget --timeout 7200

lint: setup ## ruff, mypy, import-linter: what CI asks for
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo

matrix: setup ## run the smoke tier with other versions, for two hours; CELLS="3.4.0b2 18" for some
	PYTHONPATH=tests $(PY) -m matrix $(CELLS)

docs: setup ## build the documentation into .txbatch/site, each warning an error; `txbatch docs` opens it
	$(PY) -m sphinx -n -W --keep-going -q -b html -c docs -d .txbatch/site-trees . .txbatch/site

docs-generate: setup ## write all that the code says of itself: docs/reference/, file cases, stored JSON, proofs of rules
	$(PY) -m docs.generate
	$(PY) tests/file_cases.py
	$(PY) tests/stored_json.py
	$(PY) tests/proofs.py

test-compose: setup ## run docker-compose.yml for real and check its reports
	bin/test-compose

bench: setup ## measure everything, within 90 minutes; an interrupted run goes on
	$(PY) -m bench

bench-quick: setup ## measure the most telling figures, in three minutes
	$(PY) -m bench --quick

bench-compare: setup ## two results side by side; BENCH="old.json new.json", else the last two
	$(PY) -m bench.compare $(BENCH)

##@ Look after it
setup: ## make .venv from requirements.txt, where that is not done yet
	@bin/setup

wheel: setup ## build dist/txbatch-<version>-py3-none-any.whl, for `pip install`
	$(PY) -m hatchling build -t wheel -d dist

release-check: setup ## build wheel and sdist, install both into empty environments, run the project of `txbatch init`
	bin/release-check

lock: ## resolve requirements.in into requirements.txt; LOCK_ARGS=--upgrade for newer versions
	@bin/lock $(LOCK_ARGS)

clean: down ## remove .venv and all data of this checkout
	rm -rf .venv .txbatch

help: ## show this
	@sed -n 's/^##@ \(.*\)/\n\1/p; s/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22
