# The commands for people. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
# Every worker of the tests, and every process that they start, would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo up test test-changed check format golden proto kubernetes engine focus-validator image release bench conformance lock clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 21

demo: $(BIN)/.ready ## Lease, use and bill machines on this host, from end to end, in about four minutes
	@$(BIN)/python -m demo run

up: $(BIN)/.ready ## Start the same cloud and leave it running; prints its URL and a key
	@$(BIN)/python -m demo up

test: $(BIN)/.ready .venv-infra/.ready ## Run every test; prints the command to install system packages that are missing
	@$(BIN)/python -m demo packages
	@$(BIN)/python -m pytest -n 3 --dist loadgroup

test-changed: $(BIN)/.ready ## Run the tests that changes since origin/main, or since BASE=REF, can affect
	@mkdir -p var
	@$(BIN)/python -m tests.support.changed $(if $(BASE),--base $(BASE)) > var/test-changed.txt
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $$(cat var/test-changed.txt)

check: $(BIN)/.ready .venv-infra/.ready ## Check format, lints, types and import contracts, and run the fast tests
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/mypy --python-executable .venv-infra/bin/python --cache-dir .mypy_cache/infra -p infra -p tests.support.cloud.inside
	@mkdir -p var
	@$(BIN)/lint-imports > var/imports.txt 2>&1 || { cat var/imports.txt; exit 1; }
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/unit tests/arch

format: $(BIN)/.ready ## Format the code, and fix the lints that can be fixed automatically
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

golden: $(BIN)/.ready ## Rewrite golden files and docs/generated; review the diff
	@GOLDEN=write $(BIN)/python -m pytest -q -n 2 -m "not machines" || true
	@git status --short tests/golden docs/generated

proto: $(BIN)/.ready ## Generate the messages of the .proto files
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. data_plane/proof/verifier/service/verifier.proto providers/nebius_api/messages.proto reconciler/remote_write/remote_write.proto

kubernetes: $(BIN)/.ready ## Build real Kubernetes for the tests of clusters: once, about 12 minutes on two cores
	@$(BIN)/python -m tests.support.kubernetes.binaries

image: ## Build the container image, with buildah, podman or docker; FILES=DIR holds the files that go into it
	@infra/image/build

release: ## Build the archive that hosts without containers run; PYTHON=python3.11 is the hosts' Python
	@infra/host/build

engine: $(BIN)/.ready ## Build Pulumi's engine for the tests of infra/: once, about 3 minutes on two cores
	@$(BIN)/python -m tests.support.cloud.engine

focus-validator: $(BIN)/.ready ## Install the official FOCUS validator for a test of exports: once, about a minute; needs Python 3.12
	@$(BIN)/python -m tests.support.focus_validator

bench: $(BIN)/.ready ## Run the benchmarks; writes var/bench/*.json and prints a table
	@$(BIN)/python -m benchmarks

conformance: $(BIN)/.ready ## Hold the API against its OpenAPI document for ten minutes, with generated requests
	@CONFORMANCE_SECONDS=600 $(BIN)/python -m pytest -q -n 0 tests/integration/api/test_conformance.py

lock: $(BIN)/.ready ## Pin the newest dependencies, with hashes and without index addresses
	@$(BIN)/pip install --quiet uv
	@for extra in "" "--extra dev"; do \
	  out=requirements$${extra:+-dev}.lock; \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-emit-find-links --no-emit-package splitplane-cli --custom-compile-command "make lock" $$extra pyproject.toml -o $$out --upgrade; done
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --custom-compile-command "make lock" --group infra -o requirements-infra.lock --upgrade
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --allow-unsafe \
	  --no-emit-find-links --custom-compile-command "make lock" --group image -o infra/image/requirements.lock --upgrade
	@$(BIN)/uv pip compile --quiet --python-version 3.12 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --custom-compile-command "make lock" --group focus-validator -o tests/support/focus-validator.lock --upgrade
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --custom-compile-command "make lock" --group ledger-peer -o benchmarks/ledger-peer.lock --upgrade

clean: ## Delete everything that was built here
	rm -rf .venv .venv-infra var .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# The Python packages, installed again when the pins change.
$(BIN)/.ready: requirements-dev.lock pyproject.toml control_plane/cli/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "Python's venv module is missing. Run: apt-get install -y python3-venv"; exit 1; }
	@echo "setting up Python packages in .venv (about a minute, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings editable_mode=compat -e control_plane/cli
	@mkdir -p var && touch $@

# What the program of infra/ runs on, apart from the product: Pulumi wants an older protobuf (docs/decisions/0050).
.venv-infra/.ready: requirements-infra.lock
	@echo "setting up Pulumi in .venv-infra (half a minute, once)"
	@test -x .venv-infra/bin/python || $(PYTHON) -m venv .venv-infra
	@.venv-infra/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-infra.lock
	@touch $@
