PYTHON ?= python3
BIN := .venv/bin
# Tests of one file share compiled programs, so each file stays in one process.
PARALLEL := -n logical --maxprocesses 4 --dist loadfile

.PHONY: demo venv test test-all check lint types docs bench clean

demo: venv
	$(BIN)/dreamfleet train --preset tiny cartpole --duration 840 --logdir logdir/demo

venv: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test: venv
	$(BIN)/pytest $(PARALLEL) -m 'not learning and not chaos'

test-all: test
	$(BIN)/pytest -m 'learning or chaos'

check: lint types test

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/pyright

docs: venv
	$(BIN)/python -c 'from dreamfleet.options.help import option_page; print(option_page(), end="")' > docs/options.md

bench: venv
	$(BIN)/python -m benchmarks.transport --json transport.json
	$(BIN)/python -m benchmarks.replay --json replay.json
	$(BIN)/python -m benchmarks.learner --json learner.json

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .hypothesis logdir
