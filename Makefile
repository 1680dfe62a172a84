# Cairn. `make app` serves the web UI, `make test` runs the tests; both build .venv first and need only Python 3.11+ and make.
# `make check` is everything that has to be green. `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
HOST   ?= 127.0.0.1
PORT   ?= 7860
# A real browser costs a third of all tests, the laboratory is not installed, and clusters are made of many processes: they
# have targets of their own.
PYTEST_ARGS ?= --ignore=tests/browser --ignore=tests/research --ignore=tests/stress
PAGE_ARGS ?= tests/browser
RESEARCH_ARGS ?= tests/research
STRESS_ARGS ?= tests/stress
QUESTION ?= What is a flashbulb memory?
PDFS ?=
# One process a core; a file's tests stay together, because they share what is expensive to make.
PYTEST_XDIST ?= -n auto --dist loadfile

BIN    := $(VENV)/bin
PY     := $(BIN)/python
TORCH  := $(shell sed -n 's/^\(torch==.*\)$$/\1/p' requirements.txt)
# pip would compile what it installs on one core, which takes most of its time. Tests and the hundreds of models of
# transformers are left out: hardly any is ever imported. Some packages hold files that no Python compiles.
PIP    := $(PY) -m pip install --disable-pip-version-check --quiet --no-compile
COMPILE := $(PY) -m compileall -qq -j 0 -x '/(tests|testing/_internal|transformers/models)/' $(VENV)/lib || true

# Else every process that the application or its tests start would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help app install install-dev install-web test test-page test-research test-stress kernels gpu-check stress lint lint-web types contracts docs docs-check check requirements pictures clean

help: ## List the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

app: install ## Serve the web UI with the shipped checkpoint and print the address that opens it
	$(PY) -m app serve --host $(HOST) --port $(PORT)

install: $(VENV)/.installed ## Make .venv with everything that the application needs

install-dev: $(VENV)/.installed-dev ## Make .venv with everything that the checks need

install-web: node_modules/.installed ## Fetch the linter of the page modules (needs npm)

test: $(VENV)/.installed-dev ## Run the tests (PYTEST_ARGS="tests/app/cli" for some of them)
	$(PY) -m pytest $(PYTEST_XDIST) $(PYTEST_ARGS)

test-page: $(VENV)/.installed-dev ## Run the tests of the web page in chromium (LATE=1: whatever order answers come in)
	$(PY) -m pytest $(PYTEST_XDIST) $(PAGE_ARGS)

test-research: $(VENV)/.installed-dev ## Run the tests of what trains models and makes questions
	$(PY) -m pytest $(PYTEST_XDIST) $(RESEARCH_ARGS)

test-stress: $(VENV)/.installed-dev ## Run short forms of `make stress`
	$(PY) -m pytest $(PYTEST_XDIST) $(STRESS_ARGS)

# Triton compiles without a GPU, and its interpreter runs what it compiles. It stays out of the environment: it is as large.
kernels: $(VENV)/.installed-dev ## Compile the kernels for three kinds of GPU and run them interpreted (fetches Triton)
	[ -d $(VENV)/triton ] || $(PIP) --no-deps --target $(VENV)/triton 'triton>=3.6'
	PYTHONPATH=$(VENV)/triton TRITON_INTERPRET=0 $(PY) -m pytest tests/model/attention/test_compiled_kernels.py -m "slow or not slow" $(PYTEST_XDIST)
	PYTHONPATH=$(VENV)/triton TRITON_INTERPRET=1 $(PY) -m pytest tests/model/attention/test_fused.py

gpu-check: $(VENV)/.installed-dev ## The first hour on a GPU: tests, kernels, ingestion, answers, training, in one dated file
	$(PY) benchmarks/speed/gpu_check.py $(GPU_CHECK_ARGS)

stress: $(VENV)/.installed-dev ## Kills, damage, failing disks, other models, jumping clocks, many times (hours)
	$(PY) tests/stress

lint: $(VENV)/.installed-dev ## Style of the code
	$(BIN)/ruff check .
	@! git grep -nE '^(<{7} |>{7} )'  # marks of a merge

lint-web: node_modules/.installed ## Style and types of the page modules (needs node and npm)
	npm run --silent lint

types: $(VENV)/.installed-dev ## Types of the code
	$(BIN)/mypy

contracts: $(VENV)/.installed-dev ## Which package may import what
	$(BIN)/lint-imports

docs: $(VENV)/.installed ## Write the generated pages (docs/settings.md, docs/sizes.md) anew
	$(PY) -m docs.reference docs

docs-check: $(VENV)/.installed ## Fail where a generated page is not what the code says
	$(PY) -m docs.reference docs --check

check: test test-page test-research test-stress lint lint-web types contracts docs-check ## Everything that has to be green

# Pins for one version of every package. Build tags (+cpu) and the packages of one GPU vendor stay out: they follow torch.
requirements: $(VENV)/.installed-dev ## Compile requirements*.txt from pyproject.toml
	echo "python-dateutil<3" > $(VENV)/constraints.txt  # botocore, which the tests' S3 server needs, takes no newer one
	for part in "requirements.txt --constraint=$(VENV)/constraints.txt" "requirements-dev.txt --extra=dev --extra=train --constraint=requirements.txt"; do \
	  set -- $$part; out=$$1; shift; \
	  $(BIN)/pip-compile --quiet --upgrade --strip-extras --no-annotate --no-header --allow-unsafe --no-emit-index-url \
	    --no-emit-find-links --no-emit-trusted-host "$$@" --output-file $(VENV)/compiled.txt pyproject.toml && \
	  { echo "# Compiled from pyproject.toml by 'make requirements'."; \
	    sed -e 's/+[a-z0-9.]*$$//' -e '/^nvidia-/d' -e '/^triton/d' -e '/^cuda-/d' -e '/^#/d' -e '/^$$/d' -e '/^-/d' \
	    $(VENV)/compiled.txt; } > $$out || exit 1; \
	done

pictures: $(VENV)/.installed-dev ## Take the pictures of docs/images anew (QUESTION="..." PDFS="a.pdf b.pdf"; needs chromium)
	$(PY) -m tests.browser.pictures "$(QUESTION)" $(foreach pdf,$(PDFS),--pdf "$(pdf)")

clean: ## Remove the environment and caches
	rm -rf $(VENV) node_modules .pytest_cache .ruff_cache .mypy_cache .import_linter_cache

# torch goes first: an environment that already has a build of this version (CUDA, ROCm) keeps it.
$(VENV)/.installed: requirements.txt pyproject.toml | $(PY)
	$(PIP) "$(TORCH)"
	$(PIP) -r requirements.txt
	PYTHONWARNINGS=ignore $(PIP) --no-deps --editable .
	@$(COMPILE)
	@touch $@

# Both packages are pinned in package.json; binaries for other systems are optional and differ by registry: no lock file.
node_modules/.installed: package.json
	npm install --silent --no-package-lock --no-audit --no-fund
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(PIP) -r requirements-dev.txt
	@$(COMPILE)
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Cairn needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
