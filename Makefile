# Everything runs from .venv; `make setup` makes it, and each target does so by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK := $(VENV)/spark
# What a run tries at random rotates with the date; `make test SEED=20261231` repeats a run.
SEED ?= $(shell date -u +%Y%m%d)
# Only a test of the night uses schemathesis, and each worker would import it.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder --hypothesis-seed=$(SEED) \
	-p no:schemathesis --ignore=tests/console/test_schema.py
export TEST_SEED := $(SEED)
# Tests of compiled modules only; the long ones are in tools/prove.
NATIVE_TESTS := tests/compiled tests/ndr/test_engine.py tests/queueing/test_deadlines.py tests/queueing/test_drafts.py \
	tests/queueing/test_entries.py tests/queueing/test_stamping.py tests/record tests/store/test_damage.py tests/store/test_row_frames.py \
	tests/msrpc/rpc/test_ntlm_vectors.py tests/msrpc/rpc/test_recorded_conversations.py tests/msrpc/rpc/test_whole_pdus.py \
	tests/peering/test_simulation.py

.PHONY: setup docs deb package-test java jdk samba nftables domain curl browser prometheus wireshark deployments compiled connector interpreted demo test nightly wheel-test mutants fuzzer recorder lint bench image-test clean

setup: compiled

$(STAMP): requirements.txt pyproject.toml packaging/msrpc/pyproject.toml packaging/client/pyproject.toml
	@echo "setup: installing into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation \
		--editable packaging/msrpc --editable packaging/client --editable .
	@touch $@

# Only the pipeline on Spark needs it.
java:
	@tools/ensure java

# javac, which only building the connector needs.
jdk:
	@tools/ensure jdk

# Java starts Spark in half the time with it; tests do so again and again.
$(SPARK): $(STAMP) tools/share-classes
	@$(BIN)/python tools/share-classes $(SPARK) >$(VENV)/spark.log 2>&1 || \
		echo "tests with Spark take longer: tools/share-classes failed, see $(VENV)/spark.log"
	@touch $(SPARK)

# The hot half of the queue manager as machine code beside its sources; nothing to do while no source is newer.
compiled: $(STAMP)
	@tools/ensure headers
	@$(BIN)/python tools/native.py

# The connector for Spark in Java; nothing to do while no source is newer. Without javac, Spark reads by Python.
connector: $(STAMP)
	@$(BIN)/python tools/connector.py

# Without it, for work on the sources.
interpreted: $(STAMP)
	@find src -name '*.so' -delete
	@$(BIN)/python tools/native.py --generate

# Only tests want it.
samba:
	@tools/ensure samba

nftables:
	@tools/ensure nftables

domain: $(STAMP)
	@tools/ensure domain
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-domain.txt || [ -z "$$CI" ]

# Only the tests of the console in a browser want it.
browser: $(STAMP)
	@tools/ensure browser
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-browser.txt || [ -z "$$CI" ]

# Only the tests of the resource agent want it.
curl:
	@tools/ensure curl

# promtool, with which tests check metrics and alert rules.
prometheus:
	@tools/ensure prometheus

# tshark, with which a test reads captures of all interfaces.
wireshark:
	@tools/ensure wireshark

# Only tests of the Helm chart and of the examples for container engines want them.
deployments: $(STAMP)
	@tools/ensure deployments
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-deployments.txt || [ -z "$$CI" ]
	@$(BIN)/python tools/fetch-helm || [ -z "$$CI" ]

test: java jdk samba curl prometheus wireshark compiled connector $(SPARK)
	@$(PYTEST) -m "not slow"
	@TESTS=compiled $(PYTEST) -n 2 -m "not slow" $(NATIVE_TESTS)

demo: java compiled
	@$(BIN)/python demo

# The long tests in parts, each with its result in docs/proof: tools/prove lists them. All of them take days.
NIGHTLY := java jdk samba nftables domain curl browser prometheus wireshark deployments compiled connector $(SPARK)
nightly: $(NIGHTLY) fuzzer recorder
	@$(BIN)/python tools/prove all

nightly-%: $(NIGHTLY) fuzzer recorder
	@$(BIN)/python tools/prove $*

fuzzer: $(STAMP)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-fuzz.txt

recorder: $(STAMP)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-mutants.txt

# Changes of single places that the tests have to notice; which ones, SEED says.
MUTANTS ?= 500
mutants: $(STAMP) recorder
	@$(BIN)/python tools/mutate --seed $(SEED) --count $(MUTANTS)

# The wheels of msrpc, openmsmq-client and openmsmq, in empty environments of their own.
wheel-test: $(STAMP)
	@tools/ensure headers
	@$(BIN)/python tools/try-wheel

# The site of the documents, in site/.
docs: $(STAMP)
	@[ -x .venv-docs/bin/mkdocs ] || python3 -m venv .venv-docs
	@.venv-docs/bin/python -m pip install -qq --disable-pip-version-check -r requirements-docs.txt
	@$(BIN)/python tools/native.py --generate
	@.venv-docs/bin/python tools/site.py
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build -q
	@.venv-docs/bin/python tools/site.py --check

lint: $(STAMP)
	@$(BIN)/python tools/native.py --generate
	@$(BIN)/ruff check src tests benchmarks demo tools/spark-options tools/try-image tools/sanitize tools/fuzz tools/try-wheel tools/make-deb tools/command_files.py tools/try-package tools/mutate tools/share-classes tools/native.py tools/import_contract.py tools/sync_client.py tools/command_line.py tools/hatch_build.py tools/connector.py tools/fetch-helm tools/chart tools/plain_english tools/architecture_picture.py tools/site.py tools/prove tools/try-platforms tools/try-interpreters tools/try-debian tools/check_test_imports.py
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

# Compares with rabbitmq-server, redis-server and postgresql where they are installed; BENCH=--quick for a short one.
bench: java jdk compiled connector
	@$(BIN)/python benchmarks/run.py $(BENCH)
	@$(BIN)/python benchmarks/curves.py $(filter --quick,$(BENCH))
	@$(BIN)/python benchmarks/remote_reading.py $(filter --quick,$(BENCH))
	@$(BIN)/python benchmarks/transfer.py
	@$(BIN)/python benchmarks/bulk.py
	@$(BIN)/python benchmarks/pipeline.py

# Not part of `test`: it wants root, Debian's mirror, PyPI, half a gigabyte and the ports 1135 and 3103.
image-test: $(STAMP)
	@tools/ensure image
	@$(BIN)/python tools/try-image

# The Debian package, for the Debian of this machine.
deb:
	@tools/ensure deb
	@/usr/bin/python3 tools/make-deb .

# As root: the package is installed in an overlay over this system, of which nothing changes.
package-test:
	@tools/ensure deb lintian
	@/usr/bin/python3 tools/try-package

clean:
	find src -name '*.so' -delete
	rm -rf $(VENV) build/native .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
