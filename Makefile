# opicflow. `make help` lists what there is; everything runs in .venv, which is made when it is needed.

PYTHON ?= python3

VENV := .venv/bin
STAMP := .venv/.opicflow-is-installed
TOOLS := .venv/.tools-are-installed

# Many machines that build say that Python shall not keep what it compiles: every process of the tests would compile again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench accuracy experiments soak services services-stop services-status clean rebuild

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(TOOLS)  ## create .venv and install opicflow and its tools there

demo: $(STAMP)  ## replay the crawl log in examples/ and show its top pages beside their exact PageRank
	@$(VENV)/python examples/demo.py

test: $(TOOLS)  ## run the tests, as CI does, but for slow ones [ALL=1: those too, in half an hour] and soak tests
	@$(if $(ALL),OPICFLOW_ALL_TESTS=1 )$(VENV)/python -m pytest

check: $(TOOLS)  ## ruff, formatting, types of the pure packages, import rules
	@$(VENV)/ruff check
	@$(VENV)/ruff format --check
	@$(VENV)/mypy
	@$(VENV)/lint-imports --no-logo

bench: $(TOOLS)  ## measure speed and memory, into build/bench.json [ONLY=group]
	@$(VENV)/python -m benchmarks $(ONLY)

accuracy: $(TOOLS)  ## measure the error against exact PageRank, into docs/results/accuracy.md
	@$(VENV)/python benchmarks/accuracy.py

experiments: $(TOOLS)  ## make the papers' experiments again, into docs/results (experiments, discovery, manipulation, communities): over an hour
	@$(VENV)/python -m benchmarks.experiments

soak: $(TOOLS)  ## run the long simulations, and the thorough tests at full length, with a new seed each time [ONLY=name] [SEED=n]
	@seed=$(or $(SEED),$$(date +%s)); echo "make soak$(if $(ONLY), ONLY=$(ONLY)) SEED=$$seed"; \
	OPICFLOW_SEED=$$seed OPICFLOW_HYPOTHESIS=soak \
	$(VENV)/python -m pytest -m "soak or thorough" -rP --hypothesis-seed=$$seed $(if $(ONLY),-k "$(ONLY)")

services: $(STAMP)  ## start Kafka, a schema registry and Flink on this machine [ONLY=kafka,registry,flink]
	@$(VENV)/python -m deploy.services start --usual-ports $(if $(ONLY),--only $(ONLY))

services-stop: $(STAMP)  ## stop them, and remove their data [ONLY=...]
	@$(VENV)/python -m deploy.services stop $(if $(ONLY),--only $(ONLY))

services-status: $(STAMP)  ## tell what runs, where [ONLY=...]
	@$(VENV)/python -m deploy.services status $(if $(ONLY),--only $(ONLY))

clean:  ## remove .venv and everything that was made
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv holds absolute paths, so one that came from another folder, lost its Python, or has another Python than the one
# asked for by PYTHON=... is made again. Otherwise a change of the dependencies only installs what is missing.
BASE := -c 'import sys; print("%s %s" % (sys.base_prefix, sys.version.split()[0]))'
VENV_FOLDER := $(shell test -x $(VENV)/python && cat $(STAMP) 2>/dev/null)
VENV_BASE := $(shell $(VENV)/python $(BASE) 2>/dev/null)
WANTED_BASE := $(if $(filter file,$(origin PYTHON)),$(VENV_BASE),$(shell "$(PYTHON)" $(BASE) 2>/dev/null))
ifneq "$(VENV_FOLDER) with $(VENV_BASE)" "$(CURDIR) with $(WANTED_BASE)"
  MAKE_ANEW := yes
endif

$(STAMP): setup.py hashes.txt $(if $(MAKE_ANEW),rebuild)
	$(if $(MAKE_ANEW),$(if $(PYTHON_TROUBLE),$(error $(PYTHON_TROUBLE))))
	@rm -f $(STAMP)
	@$(if $(MAKE_ANEW),echo "Creating .venv: this takes half a minute.",echo "Updating .venv.")
	@$(if $(MAKE_ANEW),"$(PYTHON)" -m venv --clear .venv,true)
	@awk '/^uv==/,/[^\\]$$/' hashes-of-tools.txt > .venv/uv.txt
	@$(PIP) install --quiet --require-hashes -r .venv/uv.txt || echo "Without uv pip installs everything: this takes longer."
	@$(call install,--require-hashes -r hashes.txt)
	@$(call install,--no-deps --no-build-isolation -e .)
	@echo "$(CURDIR)" > $(STAMP)

$(TOOLS): $(STAMP) hashes-of-tools.txt
	@echo "Installing tools, and compiling what a replay needs: this takes half a minute."
	@$(call install,--require-hashes -r hashes.txt -r hashes-of-tools.txt)
	@$(VENV)/opicflow replay examples/crawl.jsonl.gz --top 0 --quiet > /dev/null
	@touch $(TOOLS)

rebuild:

# uv takes an eighth of pip's time, and the index of pip's settings. Where it cannot be installed, or fails, pip installs.
PIP = $(VENV)/python -m pip --disable-pip-version-check
INDEX = $(PIP) config list | sed -n "s/^.*\.index-url='\(.*\)'/\1/p" | head -n 1
UV = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(INDEX))}" $(VENV)/uv pip install --quiet --python $(VENV)/python
install = { test -x $(VENV)/uv && $(UV) $(1); } || $(PIP) install --quiet $(1)

# Empty, or what is wrong with $(PYTHON) and what to do about it, in one line. Read only when .venv has to be made.
PYTHON_VERSION = $(shell "$(PYTHON)" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
PYTHON_IS_RIGHT = $(shell "$(PYTHON)" -c 'import sys; print((3, 10) <= sys.version_info[:2] <= (3, 13) or "")' 2>/dev/null)
PYTHON_HAS_VENV = $(shell "$(PYTHON)" -c 'import ensurepip, venv; print(True)' 2>/dev/null)
PYTHON_ADVICE = name one like this: make $(or $(firstword $(MAKECMDGOALS)),setup) PYTHON=python3.12
COMMA := ,
NEEDED = opicflow needs Python 3.10 to 3.13$(COMMA) but $(PYTHON)
PYTHON_TROUBLE = $(strip $(if $(PYTHON_VERSION),$(if $(PYTHON_IS_RIGHT),$(if $(PYTHON_HAS_VENV),, \
  $(PYTHON) lacks venv or ensurepip: install them (Debian: apt install python3-venv) or $(PYTHON_ADVICE)), \
  $(NEEDED) is $(PYTHON_VERSION): $(PYTHON_ADVICE)), \
  $(NEEDED) cannot be run: $(PYTHON_ADVICE)))
