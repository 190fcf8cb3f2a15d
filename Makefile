# Everything runs in .venv, which the first command makes. Needs only make and Python 3.11 or newer.

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --quiet --disable-pip-version-check --no-input
KERNELS := $(wildcard src/higsfa/core/native/kernels.[ch])

QUICK := tests/test_single_nodes.py tests/test_sklearn.py tests/test_sklearn_conventions.py tests/test_networks.py tests/models tests/training/test_sources.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help test test-oldest wheels test-processors test-processors-quick demo docs paper bench soak paper-scale rat format clean
.PHONY: distclean

help:  ## Show this list
	@echo "Usage: make TARGET [PYTHON=python3.12] [WORKERS=4]"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-19s%s\n", $$1, $$2}'

test: $(VENV)/.installed-dev  ## Lint, check formatting, types and import order, then run all tests
	@echo "== ruff check" && $(PY) -m ruff check .
	@echo "== ruff format" && $(PY) -m ruff format --check .
	@echo "== mypy" && $(PY) -m mypy
	@echo "== import-linter" && $(VENV)/bin/lint-imports --no-logo
	@echo "== pytest" && $(PY) -m pytest -n $(WORKERS) --dist worksteal

test-oldest: .venv-oldest/.installed  ## Quick tests with the oldest versions that we say we work with, on Python 3.11
	.venv-oldest/bin/python -m pytest -n $(WORKERS) --dist worksteal -p no:cacheprovider -m "not slow" $(QUICK)

wheels: $(VENV)/.installed-wheels  ## Build source and wheel into dist/, and try the wheel in an environment of its own
	rm -rf dist build/wheel
	$(PY) -m build --outdir build/wheel .
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) tests/wheels.py build/wheel dist

test-processors: $(VENV)/.installed-dev  ## Numerical tests with the code of numpy and BLAS for other processors
	$(PY) tests/processors.py --workers $(WORKERS)

test-processors-quick: $(VENV)/.installed-dev
	$(PY) tests/processors.py --workers $(WORKERS) --quick

demo: $(VENV)/.installed-plots  ## Run the demonstration; results go to demo/
	$(PY) -m higsfa demo --out demo --force

docs: $(VENV)/.installed-docs  ## Build the site with its gallery in docs/_build/html; warnings are errors
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

paper:  ## Build paper/paper.md to build/paper.pdf; needs pandoc and one of xelatex, typst, weasyprint
	@command -v pandoc >/dev/null || { \
	    echo "error: pandoc not found; install it (Debian, Ubuntu: apt install pandoc; or pip install pypandoc_binary)" >&2; exit 1; }
	@engine=$$(command -v xelatex || command -v typst || command -v weasyprint) || { \
	    echo "error: pandoc needs one of xelatex, typst or weasyprint for PDF (pip install weasyprint is the smallest)" >&2; exit 1; }; \
	mkdir -p build && pandoc paper/paper.md --citeproc --resource-path paper --bibliography paper/paper.bib \
	    --metadata author="The higsfa developers" --pdf-engine "$$engine" --output build/paper.pdf && echo "open build/paper.pdf"

bench: $(VENV)/.installed-bench  ## Measure where the library stands, about 12 minutes; writes docs/performance.md
	$(PY) benchmarks/suite.py
	$(PY) benchmarks/guard.py

soak: $(VENV)/.installed-dev  ## Sanitizers, 2,000 random networks, 50 kills of fits, 235,000 damaged files; an hour or more
	$(PY) tests/sanitizers.py
	HIGSFA_ARCHITECTURES=2000 $(PY) -m pytest -q -n $(WORKERS) tests/test_network_oracle.py
	HIGSFA_PRESETS=all $(PY) -m pytest -q tests/test_presets.py -k "paper_networks"
	HIGSFA_KILLS=50 $(PY) -m pytest -q tests/scale/test_checkpoints.py -k killed
	$(PY) tests/soak_fuzz.py

paper-scale: $(VENV)/.installed-plots  ## Train the paper's network on 231,660 images, about 20 minutes on two cores
	$(PY) benchmarks/paper_scale.py

rat: $(VENV)/.installed-plots  ## The rat in its box: slowness, place cells, head directions, 1,250 to 80,000 frames; an hour or more
	$(PY) benchmarks/rat.py

format: $(VENV)/.installed-dev  ## Let ruff fix and format the code
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:  ## Remove caches and build products, keep .venv
	rm -rf build dist wheelhouse docs/_build docs/auto_examples docs/generated docs/reference.rst .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)*/*' -not -path './.git/*' -prune -exec rm -rf {} +

distclean: clean  ## Remove .venv too
	rm -rf $(VENV) .venv-oldest

# One stamp for each extra; an extra is installed again only after pyproject.toml or the compiled code have changed.
$(VENV)/.installed-%: pyproject.toml hatch_build.py $(KERNELS) $(VENV)/.created
	@echo "Installing higsfa[$*] into $(VENV) ..."
	@$(PIP) install --editable ".[$*]" || { \
	    echo "error: could not install higsfa[$*]; pip's message is above. Is PyPI reachable?" >&2; exit 1; }
	@touch $@

.venv-oldest/.installed: pyproject.toml hatch_build.py requirements/oldest.txt $(KERNELS)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	    echo "error: the oldest versions have wheels for Python 3.11 only; name one: make test-oldest PYTHON=python3.11" >&2; \
	    exit 1; }
	@"$(PYTHON)" -m venv --clear .venv-oldest
	@echo "Installing the oldest versions into .venv-oldest ..."
	@.venv-oldest/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input install --prefer-binary \
	    --constraint requirements/oldest.txt --editable ".[plots,dask]" hypothesis pandas pytest pytest-xdist
	@touch $@

$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null || { \
	    echo "error: '$(PYTHON)' not found; name a Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: higsfa needs Python 3.11 or newer, but '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1);" \
	         "name another one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Creating $(VENV) with $$("$(PYTHON)" -V 2>&1) ..."
	@"$(PYTHON)" -m venv --clear $(VENV) || { \
	    echo "error: '$(PYTHON) -m venv' failed; some systems ship it apart (Debian, Ubuntu: apt install python3-venv)" >&2; \
	    exit 1; }
	@touch $@
