# Every target sets up what it needs; `make` alone lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# How long `make run` runs. Bash has a SECONDS of its own, which make takes from the environment: only ours counts.
DURATION := $(if $(filter command line,$(origin SECONDS)),$(SECONDS))
# `make run CASSANDRA=1`: a node of its own, on a port that is free, as long as the run takes; it shares the cores with all the rest.
WITH_CASSANDRA := $(BIN)/python scripts/run_cassandra.py --port 0 --fresh --directory data/demo-cassandra --
TESTS := tests/unit tests/contract tests/simulation tests/integration tests/cluster tests/chaos
# Compiled at installation: see hatch_build.py.
TYPED := $(shell find src -name '*.pxd')
CODEC := $(TYPED) $(TYPED:.pxd=.py)
# Where a test's time limit cannot interrupt (compiled code, say), show the stacks and end the process.
LAST_RESORT := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

.DEFAULT_GOAL := help
.PHONY: help setup run broker cluster console cassandra test chaos lint check format compat bench docs nightly seeds properties mutation soak clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv and install Tidelog and its pipelines with everything the tests need

$(STAMP): pyproject.toml apps/rewards/pyproject.toml hatch_build.py $(CODEC)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --editable apps/rewards --group dev
	$(BIN)/python -m compileall -q src apps/rewards/src
	-$(BIN)/python -m tidelog.spark.runtime.class_archive
	@touch $@

run: $(STAMP) ## the main job: a broker, events, five pipelines on Spark, live (SECONDS=60 bounds it; CASSANDRA=1: tables in a real one)
	@$(BIN)/python -m compileall -q src apps/rewards/src
	@$(if $(CASSANDRA),$(WITH_CASSANDRA)) $(BIN)/tidelog demo $(if $(DURATION),--seconds $(DURATION)) $(if $(CASSANDRA),--rate 300 --cassandra {})

broker: $(STAMP) ## start a broker on 127.0.0.1:9092 with its data under ./data/broker
	@$(BIN)/python -m compileall -q src apps/rewards/src
	@$(BIN)/tidelog start --listen 127.0.0.1:9092 --data-dir data/broker --welcome --set group.initial.rebalance.delay.ms=0

cluster: $(STAMP) ## start ZooKeeper and three brokers with their data under ./data/cluster
	@$(BIN)/tidelog cluster start --brokers 3 --data-dir data/cluster

console: $(STAMP) ## see the broker of `make broker` or `make run` in a browser, on 127.0.0.1:8080
	@$(BIN)/tidelog console --pipelines data/demo

cassandra: $(STAMP) ## run a real Cassandra for the pipelines (needs Java 11 or 17, and Maven)
	@$(BIN)/python scripts/run_cassandra.py

test: $(STAMP) ## run all tests (unit, contract, simulation, integration with real clients and Spark, crash tests)
	$(BIN)/python -m pytest -n 3 --dist worksteal --max-worker-restart 0 $(LAST_RESORT) -m 'not spark and not long' --durations=20 --durations-min=5 $(TESTS)
	$(BIN)/python -m pytest -m 'spark and not long' --durations=20 --durations-min=5 $(TESTS)

chaos: $(STAMP) ## the crash tests in full, of which `make test` runs a sample
	TIDELOG_CHAOS=whole TIDELOG_LOOP_LIMIT_MS=20 $(BIN)/python -m pytest tests/chaos

lint: $(STAMP) ## format, lint, words of the docs, generated code, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python scripts/check_words.py
	$(BIN)/python scripts/generate_option_types.py --check
	$(BIN)/python scripts/generate_sync_clients.py --check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## the two-minute loop: what `make lint` does, and unit tests
	$(BIN)/python -m pytest -q -n 2 --max-worker-restart 0 -m 'not slow and not spark' tests/unit tests/contract

format: $(STAMP) ## format the code, generate option types and synchronous clients, fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/python scripts/generate_option_types.py
	$(BIN)/python scripts/generate_sync_clients.py
	$(BIN)/ruff check --fix .

compat: $(STAMP) ## foreign clients and Kafka's own tools (needs Java, Go, Node and their registries)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --max-worker-restart 0 tests/compat

bench: $(STAMP) ## measure against Apache Kafka on this machine
	$(BIN)/python -m benchmarks

nightly: ## what takes hours: the four below, chaos and compat; goes on behind a part that fails
	$(MAKE) --keep-going --no-print-directory seeds properties mutation soak chaos compat

seeds: $(STAMP) ## ten thousand simulated clusters, each night others
	$(BIN)/python -m tests.simulation.search --first $$(date +%Y%m%d)0000 --seeds 10000

properties: $(STAMP) ## property tests with examples drawn anew; what they find is kept in .hypothesis
	TIDELOG_HYPOTHESIS=nightly $(BIN)/python -m pytest -q -n 2 --max-worker-restart 0 -m 'hypothesis and not spark' tests

mutation: $(STAMP) ## change the code in one place at a time and see whether a test fails
	$(BIN)/python -m tests.mutation

soak: $(STAMP) ## half an hour of load: does the broker's memory stay flat?
	$(BIN)/python -m benchmarks soak --minutes 30

docs: $(STAMP) ## write docs/reference from the option table
	$(BIN)/python scripts/generate_reference.py

clean: ## remove the virtual environment, caches and the data of `make run`
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis data
	find src -name '*.so' -delete
