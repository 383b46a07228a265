# Every target sets itself up from a bare checkout: make and python3 >= 3.11 are all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
export MPLBACKEND := Agg

.PHONY: help setup demo serve quick test check proofs stress docs mutants bench paper lock clean

help: ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(READY) ## make .venv with the locked versions (make demo needs a few of them alone)

$(RUNS): requirements-run.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "abcdp needs Python >= 3.11; call: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-run.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c "import abcdp.simulation.warm"  # compiles the loops that the first run would wait for
	@touch $@

$(READY): $(RUNS) requirements.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@touch $@

demo: $(RUNS) ## the whole path on made-up data: bank, ledger, private release, report
	$(BIN)/abcdp demo

serve: $(READY) ## an owner's server on made-up records, with an account of each role: prints what to try
	$(BIN)/abcdp serve --demo

check: $(READY) ## style, types and the order of the rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .venv/lint-imports

quick: $(READY) ## before each commit: style, the order of the rooms, fast tests of every room (under a minute)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --cache-dir .venv/lint-imports
	$(BIN)/python tests/quick.py

test: $(READY) ## the tests, two at a time (some 15 minutes on 2 cores)
	$(BIN)/pytest tests -n 2 --dist worksteal

proofs: $(READY) ## proofs that Coq and z3 check, and that they are about the shipped code (under 3 minutes; needs coqc)
	$(BIN)/pytest proofs

stress: $(READY) ## faults, kills, calibration and hostile settings, then a third of the mutants (under 20 minutes)
	$(BIN)/pytest stress --ignore stress/test_mutants.py -n 2 --dist loadfile
	$(BIN)/pytest stress/test_mutants.py  # two at a time already

docs: $(READY) ## the documentation as a site, its code run, its pages opened in a browser: site/html/index.html (some 4 minutes)
	rm -rf site
	$(BIN)/sphinx-build -b html -W --keep-going -q -d site/doctrees docs site/html
	$(BIN)/python docs/notebooks.py site/html/notebooks
	$(BIN)/pytest docs

mutants: $(READY) ## every fault of stress/mutants.txt, one at a time; stress judges a third (about 20 minutes)
	$(BIN)/python stress/mutants.py

bench: $(READY) ## speed as ratios measured in one run, against ELFI, pyABC and numpy (under 15 minutes)
	$(BIN)/python -m bench

paper: $(READY) ## the paper's figures anew, with their claims checked, on one page (under 30 minutes; resumes)
	$(BIN)/abcdp paper all --to paper

COMPILE := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate
lock: ## write both locks anew: names, versions, hashes (make lock UPGRADE=--upgrade for newer versions)
	$(COMPILE) --group dev --group docs --extra all $(UPGRADE) -o requirements.lock
	$(COMPILE) --group install --extra cli --extra plots --extra owner -c requirements.lock -o requirements-run.lock

clean: ## remove what the targets made
	rm -rf $(VENV) demo paper site .pytest_cache .mypy_cache .ruff_cache .hypothesis
