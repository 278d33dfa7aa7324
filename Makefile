# Each target does all its set-up: a virtual environment in .venv, made once and again when pyproject.toml changes.
PYTHON ?= python3
WORKERS ?= 2

# Tests on real data sets run when this folder is there; they skip otherwise.
FAIRFOX_DATA ?= $(realpath ../shared/data)
ifneq ($(FAIRFOX_DATA),)
export FAIRFOX_DATA
endif

BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint clean

demo: $(READY)
	$(BIN)/fairfox demo --out demo-report

# One thread per worker: torch would otherwise start a thread per core in each of them.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv demo-report

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fairfox needs Python 3.11 or newer; run: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
