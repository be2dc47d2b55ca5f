# Every target sets up what it needs; nothing is done twice.
.DEFAULT_GOAL := help
SHELL := /bin/bash

BASE_PYTHON ?= python3
PYTHON := .venv/bin/python
# One stamp for each set of packages in .venv: a set adds what it lacks, and nothing is installed again.
HAS := .venv/.has-
DEMO := $(HAS)demo
TEST := $(HAS)test
DOCS := $(HAS)docs
LOWEST := .venv-lowest/bin/python
# One thread a process: tests run side by side, and small matrices gain nothing from more.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2); echo $$((n > 4 ? 4 : n)))
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(ONE_THREAD) $(PYTHON) -m pytest

.PHONY: help venv demo test test-slow test-browser test-lowest test-gpu fuzz check check-platforms format bench docs results

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

# With another Python named, an environment of the first one would be tried in its place.
ifeq ($(origin BASE_PYTHON),command line)
ifneq ($(wildcard $(PYTHON)),)
ifneq ($(shell $(PYTHON) -V),$(shell $(BASE_PYTHON) -V))
$(error .venv is of $(shell $(PYTHON) -V), not of $(BASE_PYTHON): remove .venv first)
endif
endif
endif

# $(call environment,FOLDER): an environment with uv, which installs faster than pip, where uv can be had
define environment
@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Vitral needs Python 3.11 or newer, $(BASE_PYTHON) is older: make BASE_PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
@$(BASE_PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	{ echo "$(BASE_PYTHON) lacks ensurepip, so it cannot make an environment: sudo apt install $(notdir $(BASE_PYTHON))-venv" >&2; exit 1; }
@$(BASE_PYTHON) -m venv $(1)
@$(1)/bin/python -m pip install --quiet uv || echo "uv cannot be installed here, so pip does the work more slowly"
endef

$(PYTHON):
	$(call environment,.venv)

$(LOWEST):
	$(call environment,.venv-lowest)

# What each set consists of, and which sets it holds as well.
$(HAS)demo: EXTRAS := demo
$(HAS)test: EXTRAS := test
$(HAS)test: ALSO := demo
$(HAS)slow: EXTRAS := test,ray,peers
$(HAS)slow: ALSO := demo test
$(HAS)docs: EXTRAS := docs
$(HAS)browser: EXTRAS := test,browser,docs
$(HAS)browser: ALSO := demo test docs
$(HAS)all: EXTRAS := all
$(HAS)all: ALSO := demo test slow docs browser

$(HAS)demo: constraints.txt
$(HAS)test $(HAS)slow: constraints.txt constraints-test.txt
$(HAS)docs $(HAS)browser $(HAS)all: constraints.txt constraints-test.txt constraints-docs.txt

$(HAS)demo $(HAS)test $(HAS)slow $(HAS)docs $(HAS)browser $(HAS)all: pyproject.toml | $(PYTHON)
	@what="$(patsubst %,-c %,$(filter constraints%,$^)) -e .[$(EXTRAS)]"; \
		{ test -x .venv/bin/uv && .venv/bin/uv pip install --python $(PYTHON) $$what; } || $(PYTHON) -m pip install $$what
	@touch $@ $(ALSO:%=$(HAS)%)

.venv-lowest/.complete: pyproject.toml | $(LOWEST)
	@.venv-lowest/bin/uv pip install --python $(LOWEST) --upgrade --resolution lowest-direct -e ".[test]"
	@touch $@

venv: $(HAS)all ## .venv with everything that any target needs

demo: $(DEMO) ## train a small ViT on digits, look inside it and at a photograph, write runs/demo/report.html (WEIGHTS=FILE)
	@$(PYTHON) -m vitral demo $(if $(WEIGHTS),--weights $(WEIGHTS))

test: check ## linter, types, then the fast tests
	@$(PYTEST) -n $(WORKERS) --dist loadfile

test-slow: $(HAS)slow ## the tests that take longer than a few seconds each
	@$(PYTEST) -n $(WORKERS) --dist loadfile -m "slow and not browser and not gpu"

test-browser: $(HAS)browser ## the explorer in a real browser (needs chromium)
	@$(PYTEST) -m browser

test-lowest: .venv-lowest/.complete ## the fast tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	@$(ONE_THREAD) $(LOWEST) -m pytest -n $(WORKERS) --dist loadfile

test-gpu: $(TEST) ## CUDA graphs, fp16, compiling, exact resume, memory: on a machine with a CUDA GPU, nowhere else
	@$(PYTHON) -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "make test-gpu needs a CUDA GPU; PyTorch sees none here")'
	@$(PYTEST) -s -m gpu tests/gpu

fuzz: $(TEST) ## 20,000 damaged and hostile inputs, each with a deadline and 2 GB (fuzz.json; CASES=, SEED=)
	@$(ONE_THREAD) PYTHONPATH=src $(PYTHON) tests/fuzz/run.py --cases $(or $(CASES),20000) --seed $(or $(SEED),1)

check: $(TEST) ## ruff, format check, pyright, the size of the code beside its limits
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/pyright
	@$(PYTHON) tools/count.py

# Names of uv: linux and windows are x86-64, macos is ARM. PyTorch has wheels for macOS 14 or newer. Of grad-cam there is only the source.
PLATFORMS ?= linux aarch64-unknown-linux-gnu macos windows
PYTHONS ?= 3.11.2 3.12 3.13 3.14

check-platforms: | $(PYTHON) ## look for a wheel of every pinned version, for 4 systems and 4 Pythons; installs nothing (PLATFORMS=, PYTHONS=)
	@test -x .venv/bin/uv || $(PYTHON) -m pip install --quiet uv
	@failed=0; for platform in $(PLATFORMS); do for python in $(PYTHONS); do \
		if made=$$(MACOSX_DEPLOYMENT_TARGET=14.0 .venv/bin/uv pip compile --quiet --no-header --no-annotate --python $(PYTHON) \
			--python-platform $$platform --python-version $$python --only-binary :all: --no-binary grad-cam --all-extras \
			$(patsubst %,-c %,$(wildcard constraints*.txt)) pyproject.toml) && \
			! grep -vxFf <(cat constraints*.txt) <<< "$$made" >&2; \
		then echo "$$platform, Python $$python: $$(wc -l <<< "$$made") packages"; \
		else echo "$$platform, Python $$python: no, or the packages above have no pin" >&2; failed=1; fi; \
	done; done; exit $$failed

format: $(TEST) ## let ruff mend what it can
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: $(HAS)slow ## speed and memory
	@set -e; for script in benchmarks/*.py; do echo "== $$script"; $(PYTHON) $$script; done

results: $(TEST) ## every table and figure of the results, from results/records alone
	@$(ONE_THREAD) PYTHONPATH=src $(PYTHON) results/build.py

docs: $(DOCS) ## the documentation as web pages, in site/
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "open site/index.html"
