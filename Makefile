# Everything runs from .venv. `make setup` creates it; other targets create it if necessary.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK := $(VENV)/spark
# Random tests use the date as the seed; `make test SEED=20261231` repeats a run.
SEED ?= $(shell date -u +%Y%m%d)
# Only a nightly test uses schemathesis, and each worker would import it.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder --hypothesis-seed=$(SEED) \
	-p no:schemathesis --ignore=tests/console/test_schema.py
export TEST_SEED := $(SEED)
# Tests of compiled modules only; the long ones are in tools/prove.
NATIVE_TESTS := tests/compiled tests/ndr/test_engine.py tests/queueing/test_deadlines.py tests/queueing/test_drafts.py \
	tests/queueing/test_entries.py tests/queueing/test_stamping.py tests/record tests/store/test_damage.py tests/store/test_row_frames.py \
	tests/msrpc/rpc/test_ntlm_vectors.py tests/msrpc/rpc/test_recorded_conversations.py tests/msrpc/rpc/test_whole_pdus.py \
	tests/peering/test_simulation.py

.PHONY: setup docs deb package-test java jdk samba nftables domain curl browser prometheus wireshark widl rabbitmq deployments compiled connector interpreted demo test nightly wheel-test mutants fuzzer recorder lint bench image-test clean

setup: compiled

$(STAMP): requirements.txt pyproject.toml packaging/msrpc/pyproject.toml packaging/client/pyproject.toml
	@echo "setup: installing into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation \
		--editable packaging/msrpc --editable packaging/client --editable .
	@touch $@

# Required only for Spark.
java:
	@tools/ensure java

# javac, required only to build the connector.
jdk:
	@tools/ensure jdk

# Class data that halves the start time of Spark in tests.
$(SPARK): $(STAMP) tools/share-classes
	@$(BIN)/python tools/share-classes $(SPARK) >$(VENV)/spark.log 2>&1 || \
		echo "tests with Spark take longer: tools/share-classes failed, see $(VENV)/spark.log"
	@touch $(SPARK)

# Compile performance-critical modules to C extensions, if a source is newer.
compiled: $(STAMP)
	@tools/ensure headers
	@$(BIN)/python tools/native.py

# Build the Java connector for Spark, if a source is newer. Without javac, Spark uses the Python data source.
connector: $(STAMP)
	@$(BIN)/python tools/connector.py

# Remove the compiled modules, for work on their sources.
interpreted: $(STAMP)
	@find src -name '*.so' -delete
	@$(BIN)/python tools/native.py --generate

# Required only for tests.
samba:
	@tools/ensure samba

nftables:
	@tools/ensure nftables

domain: $(STAMP)
	@tools/ensure domain
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-domain.txt || [ -z "$$CI" ]

# Required only for tests of the console in a browser.
browser: $(STAMP)
	@tools/ensure browser
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-browser.txt || [ -z "$$CI" ]

# Required only for tests of the resource agent.
curl:
	@tools/ensure curl

# promtool, which tests use to check metrics and alert rules.
prometheus:
	@tools/ensure prometheus

# tshark, which a test uses to read captures of all interfaces.
wireshark:
	@tools/ensure wireshark

# A second IDL compiler.
widl:
	@tools/ensure widl

# The test of the bridges of docs/bridges.md.
rabbitmq:
	@tools/ensure rabbitmq

# Required only for tests of the Helm chart and of the container examples.
deployments: $(STAMP)
	@tools/ensure deployments
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-deployments.txt || [ -z "$$CI" ]
	@$(BIN)/python tools/fetch-helm || [ -z "$$CI" ]

test: java jdk samba curl prometheus wireshark widl compiled connector $(SPARK)
	@$(PYTEST) -m "not slow"
	@TESTS=compiled $(PYTEST) -n 2 -m "not slow" $(NATIVE_TESTS)

demo: java compiled
	@$(BIN)/python demo

# Long tests, in parts; results are in docs/proof. `tools/prove` lists the parts. All parts together take days.
NIGHTLY := java jdk samba nftables domain curl browser prometheus wireshark widl rabbitmq deployments compiled connector $(SPARK)
nightly: $(NIGHTLY) fuzzer recorder
	@$(BIN)/python tools/prove all

nightly-%: $(NIGHTLY) fuzzer recorder
	@$(BIN)/python tools/prove $*

fuzzer: $(STAMP)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-fuzz.txt

recorder: $(STAMP)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-mutants.txt

# Mutation tests: single operators are changed, and tests must fail. SEED selects the changes.
MUTANTS ?= 500
mutants: $(STAMP) recorder
	@$(BIN)/python tools/mutate --seed $(SEED) --count $(MUTANTS)

# Test the wheels of msrpc, openmsmq-client and openmsmq in separate empty environments.
wheel-test: $(STAMP)
	@tools/ensure headers
	@$(BIN)/python tools/try-wheel

# Build the documentation site in site/.
docs: $(STAMP)
	@[ -x .venv-docs/bin/mkdocs ] || python3 -m venv .venv-docs
	@.venv-docs/bin/python -m pip install -qq --disable-pip-version-check -r requirements-docs.txt
	@$(BIN)/python tools/native.py --generate
	@.venv-docs/bin/python tools/site.py
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build -q
	@.venv-docs/bin/python tools/site.py --check

# Scripts have no suffix, so ruff would not find them.
CHECKED = src tests benchmarks demo $(wildcard tools/*.py) $(shell grep -lsE '^\#!.*python' tools/*)
lint: $(STAMP)
	@$(BIN)/python tools/native.py --generate
	@$(BIN)/ruff check $(CHECKED)
	@$(BIN)/ruff format -q --check $(CHECKED) || { echo "lint: run ruff format"; exit 1; }
	@$(BIN)/python tools/check_test_imports.py
	@$(BIN)/python tools/sync_client.py --check
	@$(BIN)/python tools/command_line.py --check
	@$(BIN)/python tools/plain_english
	@$(BIN)/python tools/architecture_picture.py --check
	@$(BIN)/python tools/prove --check
	@$(BIN)/python tools/chart --check
	@$(BIN)/mypy
	@$(BIN)/mypy demo
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/codespell
	@[ "$$(uname -m)" != x86_64 ] || $(BIN)/shellcheck packaging/ocf/openmsmq tools/ensure

# Benchmarks; include rabbitmq-server, redis-server and postgresql if installed. BENCH=--quick runs a short version.
bench: java jdk compiled connector
	@$(BIN)/python benchmarks/run.py $(BENCH)
	@$(BIN)/python benchmarks/curves.py $(filter --quick,$(BENCH))
	@$(BIN)/python benchmarks/remote_reading.py $(filter --quick,$(BENCH))
	@$(BIN)/python benchmarks/transfer.py
	@$(BIN)/python benchmarks/bulk.py
	@$(BIN)/python benchmarks/pipeline.py

# Not part of `test`: requires root, a Debian mirror, PyPI, 500 MB of disk space, and the ports 1135 and 3103.
image-test: $(STAMP)
	@tools/ensure image
	@$(BIN)/python tools/try-image

# Build the Debian package for the Debian release of this machine.
deb:
	@tools/ensure deb
	@/usr/bin/python3 tools/make-deb .

# Requires root. Installs the package in an overlay over this system, which is not changed.
package-test:
	@tools/ensure deb lintian
	@/usr/bin/python3 tools/try-package

clean:
	find src -name '*.so' -delete
	rm -rf $(VENV) build/native .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
