# `make demo` and `make test` set everything up by themselves: a virtual environment in .venv, with the
# versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench fuzz clean

demo: $(READY)
	$(BIN)/python -m metaclust.cli.demo

# One thread for each of the two test processes.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The figures also go to build/bench; `make bench BENCH="--short"` only tries whether it runs.
bench: $(READY)
	$(BIN)/python -m benchmarks --out build/bench $(BENCH)

# 100,000 damaged files of each kind; `make fuzz FUZZ="model run --files 1000 --seed 3"` reads other ones.
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/security/fuzz.py --workers 2 $(FUZZ)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
