# `make start` and `make test` are complete on a fresh machine: each installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KAFKA_STAMP := $(VENV)/.kafka

.PHONY: start test demo install lint kafka model fuzz sim mutants chaos kills interop lock bench clean

start: install
	@$(BIN)/odradek start

test: install kafka lint
	$(BIN)/pytest -n 2 --dist loadfile

# A pipeline at work, for a minute: orders in, totals out.
demo: install
	@$(BIN)/python examples/demo.py

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "odradek needs Python 3.11 or newer; PYTHON=... names one"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

# Apache Kafka's own jars, for tests and benchmarks only; the product never uses them.
kafka: $(KAFKA_STAMP)

$(KAFKA_STAMP): tools/kafka_jars.py $(STAMP)
	@$(BIN)/python tools/kafka_jars.py > $@.new && mv $@.new $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Long campaigns; `make test` has a short version of each.
model: install kafka
	MODEL_EXAMPLES=$${MODEL_EXAMPLES:-3000} $(BIN)/pytest tests/log/test_model.py

fuzz: install
	FUZZ_MINUTES=$${FUZZ_MINUTES:-10} FUZZ_SEED=$${FUZZ_SEED:-$$$$} $(BIN)/pytest tests/node/test_fuzz.py

# Whole clusters under virtual time, with faults of every kind. SEEDS=2000 or 500-900; SEED=17 tells one run again, as it happens.
# NODES, PROFILE, FAULTS and SECONDS take the place of what the seed chooses. KEPT=file keeps results: a campaign can be gone on with.
sim: install
	@$(BIN)/python -m tests.sim.campaign $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(if $(NODES),--nodes $(NODES)) \
	    $(if $(PROFILE),--profile $(PROFILE)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(SECONDS),--seconds $(SECONDS)) \
	    $(if $(KEPT),--kept $(KEPT))

# Rules of the code are switched off, one after the other, until the simulator finds each: MUTANTS="name name", SEEDS=number for each.
mutants: install
	@$(BIN)/python -m tests.sim.hunt $(MUTANTS) $(if $(SEEDS),--seeds $(SEEDS))

# Nodes of a cluster are killed, stopped, paused and cut off under clients at work.
chaos: install
	$(BIN)/python -m tests.cluster.chaos --seconds $${CHAOS_SECONDS:-600} --seed $${CHAOS_SEED:-$$$$}

# A program that writes exactly once through Spark is killed, with its workers and the brokers.
kills: install kafka
	$(BIN)/python -m tests.spark.kills --seconds $${KILLS_SECONDS:-600} --seed $${KILLS_SEED:-$$$$}

# Clients of other languages; needs Go and Node besides.
interop: install
	PYTHONPATH=. $(BIN)/python interop/run.py

# Pins anew what tools/requirements.in names.
lock: install
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --python-version 3.11 --upgrade --no-header --no-annotate \
	    tools/requirements.in -o requirements.lock

bench: install kafka
	$(BIN)/python bench/wire.py
	$(BIN)/python bench/log.py
	PYTHONPATH=. $(BIN)/python bench/broker.py
	PYTHONPATH=. $(BIN)/python bench/cluster.py
	PYTHONPATH=. $(BIN)/python bench/transactions.py
	PYTHONPATH=. $(BIN)/python bench/arrow.py
	PYTHONPATH=. $(BIN)/python bench/client.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
