# Orrery: the commands of daily work. `make` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
export ORRERY_CACHE_DIR ?= $(HOME)/.cache/orrery
SDKS := python javascript go java rust

.PHONY: help setup explorer build dist image test-dist check-targets run test test-documents test-monitoring test-examples test-explorer bench-explorer screenshots test-rust test-postgres test-clients test-sdk $(SDKS:%=test-sdk-%) test-sdk-dotnet conformance lint fmt soak bench bench-generator bench-queries bench-planning bench-stores test-bench bench-parts fuzz compare-planner guide docs footprint clean

help: ## Lists the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: ## Installs what building and testing need, if it is missing
	@scripts/setup.sh build

explorer: ## Builds the web page that the server embeds; without npm the server is built without it
	@scripts/explorer.sh

build: setup explorer ## Builds the server, with its explorer
	$(CARGO) build --release --locked -p orrery

dist: explorer ## Builds static binaries for Linux on x64 and ARM64 and packs them in dist/: archives, Debian and RPM packages, wheels, npm packages, SBOM, checksums
	@scripts/setup.sh dist
	scripts/dist/build.sh $(TARGETS)

image: ## Writes container images in dist/ from the binaries of `make dist`, without a container engine
	scripts/dist/images.sh

test-dist: ## Installs and starts everything in dist/
	@scripts/setup.sh dist
	scripts/dist/test.sh

check-targets: ## Compiles for macOS and Windows, where no test runs
	scripts/check-targets.sh $(TARGETS)

run: build ## Builds and starts the server on its embedded store
	$(TARGET_DIR)/release/orrery serve

test: lint test-rust test-fuzz test-postgres test-clients test-explorer test-sdk test-documents test-monitoring test-examples ## Runs every test: lints, the workspace, on PostgreSQL again, the key libraries, the explorer, the official SDKs, commands of the documents, monitoring, examples

lint: setup ## Checks formatting, lints and documentation comments
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --lib --no-deps --document-private-items --locked --quiet
	scripts/dependencies.py
	scripts/links.py

test-rust: setup ## Runs the tests of the workspace
	@scripts/setup.sh postgres
	@scripts/setup.sh browser
	$(CARGO) test --workspace --locked

test-fuzz: setup ## Mutates inputs of every parser of untrusted bytes for a minute, without a nightly compiler
	ORRERY_FUZZ_SECONDS=6 $(CARGO) test --workspace --locked --lib -- fuzz_ --test-threads 1
	ORRERY_FUZZ_SECONDS=6 $(CARGO) test --workspace --locked --test fuzz -- --test-threads 1

test-clients: test-fixtures ## Runs the tests of the key libraries, the pytest fixture and the JUnit extension
	@scripts/setup.sh python
	@scripts/setup.sh javascript
	python3 -B -m unittest discover --start-directory clients/python/tests
	cd clients/javascript && node --test tests/

# Servers for test suites: the pytest fixture and the JUnit extension, with the built server.
.PHONY: test-fixtures
test-fixtures: export ORRERY_BIN = $(abspath $(TARGET_DIR)/debug/orrery)
test-fixtures: test-binary
	@scripts/setup.sh python
	@scripts/setup.sh java
	[ -x $(ORRERY_CACHE_DIR)/fixtures/bin/pytest ] || { python3 -m venv $(ORRERY_CACHE_DIR)/fixtures && $(ORRERY_CACHE_DIR)/fixtures/bin/pip install --quiet --disable-pip-version-check pytest; }
	cd packaging/python/tests && PYTHONPATH=.. PYTHONDONTWRITEBYTECODE=1 $(ORRERY_CACHE_DIR)/fixtures/bin/python -m pytest -q -p orrery_bin.pytest_plugin -p no:cacheprovider
	mvn -B -ntp -f clients/junit -Dorrery.build=$(ORRERY_CACHE_DIR)/junit test

test-explorer: test-binary ## Runs the tests of the explorer in Chromium against the built server
	@scripts/setup.sh javascript
	@scripts/setup.sh browser
	cd explorer && ORRERY_BIN=$(abspath $(TARGET_DIR)/debug/orrery) npm test

bench-explorer: build ## Measures the explorer: first paint, size, and what live views cost the server
	@scripts/setup.sh javascript
	@scripts/setup.sh browser
	cd explorer && ORRERY_BIN=$(abspath $(TARGET_DIR)/release/orrery) npm run --silent measure

# The pictures in README and docs.
screenshots: test-binary
	@scripts/setup.sh browser
	mkdir -p $(TARGET_DIR)/screenshots
	cd explorer && ORRERY_SHOTS=$(abspath $(TARGET_DIR)/screenshots) ORRERY_BIN=$(abspath $(TARGET_DIR)/debug/orrery) npm test
	cp $(addprefix $(TARGET_DIR)/screenshots/,query-chart.png partitions.png items-dark.png query-narrow.png items-4k.png) docs/images/

# Hostile scripts are about no store.
test-postgres: setup test-binary ## Runs the product suites on a PostgreSQL of their own, or the one in ORRERY_TEST_STORE_URL
	@scripts/setup.sh postgres
	scripts/postgres.sh run $(CARGO) test --workspace --locked --test suite --test exchanges -- --skip hostile
	scripts/postgres.sh run $(MAKE) test-sdk

test-sdk: $(SDKS:%=test-sdk-%) ## Runs the suites of the official SDKs against the built server

$(SDKS:%=test-sdk-%): test-sdk-%: test-binary
	@scripts/setup.sh $*
	ORRERY_BIN=$(abspath $(TARGET_DIR)/debug/orrery) tests/sdk/$*/run

test-documents: test-binary ## Runs every command in the documents as it is written there; PAGES="docs/tutorial.md" only those
	@scripts/setup.sh python
	@scripts/setup.sh javascript
	ORRERY_BIN=$(abspath $(TARGET_DIR)/debug/orrery) ORRERY_PAGES="$(PAGES)" tests/documents/run

test-monitoring: test-binary ## Tests the metrics, and the dashboard and alerts in packaging/monitoring
	@scripts/setup.sh python
	@scripts/setup.sh monitoring
	ORRERY_BIN=$(abspath $(TARGET_DIR)/debug/orrery) tests/monitoring/run

test-examples: test-binary ## Runs the programs in examples/ against the built server, those whose toolchain is installed
	@scripts/setup.sh python
	@scripts/setup.sh javascript
	@scripts/setup.sh go
	@scripts/setup.sh java
	ORRERY_BIN=$(abspath $(TARGET_DIR)/debug/orrery) tests/examples/run

conformance: build ## Runs the SDKs' own suites from the folder SUITES, which holds their repositories (tests/conformance/README.md)
	@[ -n "$(SUITES)" ] || { echo "name the folder with the SDKs' repositories: make conformance SUITES=FOLDER" >&2; exit 2; }
	python3 tests/conformance/run.py --orrery $(abspath $(TARGET_DIR)/release/orrery) --from "$(SUITES)" $(CONFORMANCE)

# Not part of `make test`: the .NET SDK is rarely there.
test-sdk-dotnet: test-binary ## Runs the checks of the .NET client, if the .NET SDK is installed
	ORRERY_BIN=$(abspath $(TARGET_DIR)/debug/orrery) tests/sdk/dotnet/run

.PHONY: test-binary
test-binary: setup explorer
	$(CARGO) build --locked -p orrery

fmt: ## Formats the sources
	$(CARGO) fmt --all

soak: setup ## Repeats the crash and model tests for longer, then churns containers under load for half an hour
	ORRERY_SOAK_ROUNDS=$${ORRERY_SOAK_ROUNDS:-20} ORRERY_SOAK_MINUTES=$${ORRERY_SOAK_MINUTES:-30} $(CARGO) test --release --locked -p orrery-storage -p orrery-db -p orrery -- --nocapture

bench: build test-bench ## Compares Orrery with its peers and its limits in half an hour, then queries and stores, and writes bench/report.md; BENCH="--quick" takes 4 minutes, BENCH="--full" hours
	@scripts/setup.sh go
	@scripts/setup.sh javascript
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- run --orrery $(abspath $(TARGET_DIR)/release/orrery) $(BENCH)
	@$(MAKE) bench-queries
	@$(MAKE) bench-planning
	@$(MAKE) bench-stores

bench-generator: setup ## Compares the load generator with wrk and pgbench, and fails if it is more than a tenth slower
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- generator

bench-queries: setup ## Measures eight queries over 100 thousand and over a million items: what the index answers must not grow with them
	$(CARGO) run --release --locked -p orrery-db --example query_bench -- 100000 1000000

bench-planning: setup ## Measures how long query plans take, among them one with a thousand keys
	$(CARGO) bench --locked -p orrery-query --bench language -- plan/

test-bench: setup ## Runs the tests of the benchmark itself
	$(CARGO) test --locked --manifest-path bench/Cargo.toml

bench-stores: build ## Compares the embedded store with PostgreSQL, measures group commit; writes bench/stores.md
	@scripts/setup.sh postgres
	$(CARGO) build --release --locked -p orrery-storage --example commit_bench
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- stores --orrery $(abspath $(TARGET_DIR)/release/orrery) --commits $(abspath $(TARGET_DIR)/release/examples/commit_bench) $(STORES)

bench-parts: setup ## Measures the query language, admission, the storage engine, and the advisor over 10 million items
	$(CARGO) bench --locked -p orrery-query --bench language
	$(CARGO) bench --locked -p orrery-db --bench queries
	$(CARGO) bench --locked -p orrery-db --bench admission
	$(CARGO) run --release --locked -p orrery-storage --example store_bench
	$(CARGO) run --release --locked -p orrery-advisor --example advise_bench -- 10000000

compare-planner: test-binary ## Compares query plans with the service's own planner, where ORACLE names the directory that holds it (fuzz/compare_planner.py)
	fuzz/compare_planner.py --bin $(abspath $(TARGET_DIR)/debug/orrery) --seeds $(or $(SEEDS),0:1000)

fuzz: ## Fuzzes each parser for a minute with libFuzzer, which needs a nightly compiler
	scripts/fuzz.sh

guide: setup ## Measures the partition key strategies and writes the tables of the guide
	$(CARGO) run --locked -p orrery-db --example partition_keys -- docs/partition-keys.md

docs: ## Builds the documentation as a book in target/book, and checks its links
	@scripts/setup.sh docs
	scripts/links.py
	mdbook build

footprint: setup ## Prints binary size, start-up time and idle memory, and fails beyond their limits
	scripts/footprint.sh

clean: ## Removes build output
	$(CARGO) clean
