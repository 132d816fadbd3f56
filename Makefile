# Everything runs from .venv; `make setup` makes it, and each target does so by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup java samba demo test nightly lint bench image-test clean

setup: $(STAMP)

$(STAMP): requirements.txt pyproject.toml
	@echo "setup: installing into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Only the pipeline on Spark needs it.
java:
	@tools/ensure java

# Only tests want it.
samba:
	@tools/ensure samba

test: setup java samba
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

demo: setup java
	@$(BIN)/python demo

nightly: setup java samba
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: setup
	@$(BIN)/python -m openmsmq.ndr
	@$(BIN)/ruff check src tests benchmarks demo tools/spark-options tools/try-image
	@$(BIN)/mypy
	@$(BIN)/mypy demo

# Compares with rabbitmq-server, redis-server and postgresql where they are installed; BENCH=--quick for a short one.
bench: setup java
	@$(BIN)/python benchmarks/run.py $(BENCH)
	@$(BIN)/python benchmarks/remote_reading.py $(filter --quick,$(BENCH))
	@$(BIN)/python benchmarks/bulk.py
	@$(BIN)/python benchmarks/pipeline.py

# Not part of `test`: it wants root, Debian's mirror, PyPI, half a gigabyte and the ports 1135 and 3103.
image-test: setup
	@tools/ensure image
	@$(BIN)/python tools/try-image

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
