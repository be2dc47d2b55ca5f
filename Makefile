# Every target sets up what it needs; nothing is done twice.
.DEFAULT_GOAL := help
SHELL := /bin/bash

BASE_PYTHON ?= python3
PYTHON := .venv/bin/python
STAMP := .venv/.complete
# One thread a process: tests run side by side, and small matrices gain nothing from more.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2); echo $$((n > 4 ? 4 : n)))
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(ONE_THREAD) $(PYTHON) -m pytest

.PHONY: help venv demo test test-slow test-browser test-gpu fuzz check format bench docs results

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

venv: $(STAMP) ## .venv with everything the tests need

$(STAMP): pyproject.toml constraints.txt
	@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Vitral needs Python 3.11 or newer, $(BASE_PYTHON) is older: make venv BASE_PYTHON=python3.12" >&2; exit 1; }
	@test -x $(PYTHON) || $(BASE_PYTHON) -m venv .venv
	@test -x .venv/bin/uv || $(PYTHON) -m pip install --quiet uv || echo "uv is not to be had here: pip does the work, more slowly"
	@(test -x .venv/bin/uv && .venv/bin/uv pip install --python $(PYTHON) -c constraints.txt -e ".[all]") || \
		$(PYTHON) -m pip install -c constraints.txt -e ".[all]"
	@touch $(STAMP)

demo: $(STAMP) ## train a small ViT on digits, look inside it and at a photograph, write runs/demo/report.html (WEIGHTS=FILE)
	@$(PYTHON) -m vitral demo $(if $(WEIGHTS),--weights $(WEIGHTS))

test: check ## linter, types, then the fast tests
	@$(PYTEST) -n $(WORKERS) --dist loadfile

test-slow: $(STAMP) ## the tests that take longer than a few seconds each
	@$(PYTEST) -n $(WORKERS) --dist loadfile -m "slow and not browser and not gpu"

test-browser: $(STAMP) ## the explorer in a real browser (needs chromium)
	@$(PYTEST) -m browser

test-gpu: $(STAMP) ## CUDA graphs, fp16, compiling, exact resume, memory: on a machine with a CUDA GPU, nowhere else
	@$(PYTHON) -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "make test-gpu needs a CUDA GPU; PyTorch sees none here")'
	@$(PYTEST) -s -m gpu tests/gpu

fuzz: $(STAMP) ## 20,000 damaged and hostile inputs, each with a deadline and 2 GB (fuzz.json; CASES=, SEED=)
	@$(ONE_THREAD) PYTHONPATH=src $(PYTHON) tests/fuzz/run.py --cases $(or $(CASES),20000) --seed $(or $(SEED),1)

check: $(STAMP) ## ruff, format check, pyright
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/pyright

format: $(STAMP) ## let ruff mend what it can
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: $(STAMP) ## speed and memory
	@set -e; for script in benchmarks/*.py; do echo "== $$script"; $(PYTHON) $$script; done

results: $(STAMP) ## every table and figure of the results, from docs/results/records alone
	@$(ONE_THREAD) PYTHONPATH=src $(PYTHON) docs/results/build.py

docs: $(STAMP) ## the documentation as web pages, in site/
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "open site/index.html"
