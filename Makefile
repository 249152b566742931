PYTHON ?= python3
BIN := .venv/bin
# Tests of one file share compiled programs, so each file stays in one process.
PARALLEL := -n logical --maxprocesses 4 --dist loadfile

.PHONY: demo venv test test-ray test-all check lint types docs bench release site clean

demo: venv
	$(BIN)/dreamfleet demo --logdir logdir/demo

venv: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test: venv
	$(BIN)/pytest $(PARALLEL) --durations 12 -m 'not learning and not chaos'

test-ray: venv
	$(BIN)/pytest tests/launch/test_ray.py

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
	$(BIN)/python -c 'from pathlib import Path; from dreamfleet.options.help import write_presets; page = Path("docs/presets.md"); page.write_text(write_presets(page.read_text()))'
	$(BIN)/python packaging/figures.py

site: venv
	$(BIN)/mkdocs build

release: venv
	$(BIN)/python packaging/release.py

bench: venv
	$(BIN)/python -m benchmarks.transport --json transport.json
	$(BIN)/python -m benchmarks.replay --json replay.json
	$(BIN)/python -m benchmarks.learner --json learner.json

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis logdir
