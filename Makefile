# Each target does all its set-up: a virtual environment in .venv, made once and again when pyproject.toml changes.
# The demo installs the package alone; everything else also installs what development needs.
PYTHON ?= python3
WORKERS ?= 2

# Tests on real data sets run when this folder is there; they skip otherwise.
FAIRFOX_DATA ?= $(realpath ../shared/data)
ifneq ($(FAIRFOX_DATA),)
export FAIRFOX_DATA
endif

BIN := .venv/bin
PACKAGE := .venv/.package
READY := .venv/.ready
AXE := $(CURDIR)/.venv/npm/node_modules/axe-core/axe.min.js

.PHONY: setup demo test fuzz test-research test-browser test-engines lint docs docs-linkcheck screenshots bench results \
	package test-pythons test-lowest test-extras clean

setup: $(READY)

demo: $(PACKAGE)
	$(BIN)/fairfox demo --out demo-report

# One thread per worker: torch would otherwise start a thread per core in each of them.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Odd tables and options through every command, from a seed that is printed, or SEED, for so many minutes.
MINUTES ?= 10
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.cases --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Experiments and benchmarks, each in its quick mode; a file stays with one worker, so that each quick run is made once.
test-research: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/research

# The pages in a real browser: an installed Chromium, or Debian's package; axe-core comes from npm.
test-browser: $(READY) $(AXE)
	@command -v chromium chromium-browser google-chrome >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	AXE_CORE=$(AXE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

# Scoring on Spark and on Dask, each on this machine; Spark needs Java.
test-engines: $(READY) .venv/.engines
	@command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq default-jre-headless; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'spark or dask' tests/engines

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(READY)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

# Needs the network: links that lead outside are followed.
docs-linkcheck: $(READY)
	$(BIN)/sphinx-build --builder linkcheck docs docs/_build/linkcheck

screenshots: $(READY)
	$(BIN)/fairfox demo --out demo-report
	PYTHONPATH=tests $(BIN)/python docs/screenshots.py demo-report/biased/report.html
	$(BIN)/python docs/recording.py

# Speed, on an idle machine: every benchmark, its table in benchmarks/README.md, and one file with all results.
bench: $(READY) .venv/.engines .venv/.peers
	@command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq default-jre-headless; }
	$(BIN)/python benchmarks/run_all.py

# Every experiment whose results are not those of the shipped defaults and code, then the pages and figures.
results: $(READY)
	$(BIN)/python experiments/run_all.py $(RESULTS_OPTIONS)

# Sdist and wheel, checked and tried: installed into an empty environment, where the demo and the README's examples run.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
SMOKE = $(BIN)/python tests/smoke.py dist/fairfox-*.whl
package: dist
	$(SMOKE) --python $(PYTHON)
# The same for each Python; one that is not installed is skipped. pip may choose a torch of several GB where it has no CPU build.
test-pythons: dist
	$(SMOKE) --python $(PYTHONS)
test-lowest: dist
	$(SMOKE) --python python3.11 --constraints constraints-lowest.txt
# Each extra, installed alone; Spark is in test-engines.
EXTRAS ?= skops onnx xgboost lightgbm catboost keras mlflow polars fsspec dask
test-extras: dist
	$(SMOKE) --python $(PYTHON) --extras $(EXTRAS)

dist: $(READY) pyproject.toml README.md $(shell find src -type f -not -name '*.pyc')
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf .venv demo-report dist

$(PACKAGE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fairfox needs Python 3.11 or newer; run: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(READY): $(PACKAGE)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/.engines: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[spark,dask]'
	touch $@

# Without what it asks for: functorch, which torch has long contained.
.venv/.peers: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps inFairness
	touch $@

$(AXE): $(READY)
	@command -v npm >/dev/null || { apt-get update -qq && apt-get install -y -qq npm; }
	npm install --silent --no-audit --no-fund --prefix .venv/npm axe-core@4.14.0
	touch $@
