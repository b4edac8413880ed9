# Everything that is done to this project, by hand or in CI. `make` alone lists it.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-under-load compat mock grafana cluster coverage lint docs site rules dashboards chart rendered stack screenshots faults fuzz soak bench bench-fleet image lock clean

# The interpreter that the virtual environment is made with: python3 where it is new enough, else the
# newest one on PATH that is.
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; \
	done)
endif
SCENARIO ?= showcase
IMAGE ?= gpuslice-exporter:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
EXTRAS ?=
TARGET ?=
MOCK ?=
GRAFANA ?=
PICTURES ?=
KUBERNETES ?= 1.37.2
GPU_EXPORTER ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# A stamp says what was installed, and that pyproject.toml has not changed since.
RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev
ALL := $(VENV)/.installed-all

help: ## list the targets
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: $(RUNTIME) ## serve a fake GPU node on this machine; SCENARIO=name chooses which, PORT=9837 another port
	@$(BIN)/gpuslice-exporter demo --scenario '$(SCENARIO)' $(if $(PORT),--listen ':$(PORT)') || { code=$$?; \
		[[ $$code != 2 ]] || echo >&2 "make demo takes SCENARIO=name and PORT=number, such as PORT=9837"; exit $$code; }

test: lint ## lint, then run the tests that a commit has to pass; compiles nothing
	@scripts/install-tools
	@scripts/run-tests -m 'not slow and not tools'

test-all: lint $(ALL) ## run all tests: whole matrices, soak, fuzzing, image, systemd, charts; builds what they need
	@scripts/install-tools --all
	@scripts/run-tests

test-%: $(DEV) ## run the tests of one house that a commit has to pass: core, page, fleet, fake, product, together
	@[[ -d tests/$* ]] || { echo >&2 "error: there is no tests/$*: the houses are $$(ls -d tests/*/ | xargs -n1 basename | grep -v __ | xargs)"; exit 1; }
	@scripts/install-tools
	@scripts/run-tests -m 'not slow and not tools' tests/$*

test-under-load: $(ALL) ## run `make test` five times and all tests once beside busy loops; goes on where it stopped
	@scripts/install-tools --all
	@$(BIN)/python scripts/test-under-load

compat: $(DEV) ## run rules and dashboards on Prometheus 2 and 3, with replicas, and on VictoriaMetrics; hold limits
	@scripts/install-tools --all
	@scripts/run-tests tests/product/compat

mock: $(DEV) ## test on NVIDIA's mock driver; MOCK=FOLDER is pkg/gpu/mocknvml of NVIDIA/k8s-test-infra, built
	@[[ -f '$(MOCK)/libnvidia-ml.so.1' && -d '$(MOCK)/configs' ]] || { echo >&2 "error: MOCK='$(MOCK)' has no" \
		"libnvidia-ml.so.1 and configs: build pkg/gpu/mocknvml of github.com/NVIDIA/k8s-test-infra"; exit 1; }
	@NVML_MOCK='$(realpath $(MOCK))' scripts/run-tests tests/together/mock

grafana: $(DEV) ## look at all dashboards in a real Grafana; GRAFANA=FOLDER has bin/grafana, PICTURES=FOLDER takes some
	@[[ -x '$(GRAFANA)/bin/grafana' || -x '$(GRAFANA)/bin/grafana-server' ]] \
		|| { echo >&2 "error: GRAFANA='$(GRAFANA)' has no bin/grafana: unpack or build Grafana 10.0 or newer"; exit 1; }
	@scripts/install-tools --all
	@GRAFANA='$(realpath $(GRAFANA))' PICTURES='$(PICTURES)' scripts/run-tests --numprocesses=0 tests/product/grafana

cluster: $(DEV) ## test the chart, the image and the verdicts on pods in a real cluster on this machine; KUBERNETES=1.25.4 chooses
	@scripts/install-tools --all
	@scripts/install-kubernetes $(KUBERNETES)
	@CLUSTER='.cache/tools/kubernetes-$(KUBERNETES)' scripts/run-tests --numprocesses=0 tests/together/cluster tests/together/scheduler

coverage: $(ALL) ## run all tests and report what they do not reach; takes an hour
	@scripts/install-tools --all
	$(BIN)/python -m pytest --numprocesses=auto --dist=loadfile --cov --cov-report=term

lint: $(DEV) ## check style, types and the arrows between the packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(DEV) ## write the reference pages from the tables in the code
	$(BIN)/python scripts/write-docs

site: $(ALL) ## build the site of the documentation into build/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --nitpicky -c docs/site --doctree-dir build/doctrees . build/site
	@echo build/site/index.html

rules: $(DEV) ## write the recording rules and alerts from the code in alerts/
	$(BIN)/python -m alerts

dashboards: $(DEV) ## write the dashboards from the code in dashboards/
	$(BIN)/python -m dashboards

chart: $(DEV) ## write the chart's schema, table of values, rules and dashboards; after rules and dashboards
	$(BIN)/python -m deploy.charts

rendered: $(DEV) ## render overlays, components and the chart's examples for the tests; needs helm and kustomize
	$(BIN)/python -m tests.product.deploy.render

stack: $(DEV) ## run nodes, Prometheus, Grafana and the hub here; SCENARIO=cluster has pods that wait; PORT=9100 sets the first port
	@exec $(BIN)/python scripts/stack $(if $(PORT),--port $(PORT)) $(if $(filter file,$(origin SCENARIO)),,$(SCENARIO))

screenshots: $(DEV) ## take the pictures of the pages for the README and the documentation
	$(BIN)/python scripts/screenshots
	@PICTURES=docs/screenshots scripts/run-tests --numprocesses=0 tests/fleet/test_usage_month.py -k hub_shows_the_month

faults: $(DEV) ## try every fault at every place, and write the table in docs/reliability.md
	$(BIN)/python scripts/faults

fuzz: $(ALL) ## give every decoder a million inputs; TARGET=name chooses some
	$(BIN)/python scripts/fuzz $(TARGET)

soak: $(DEV) ## act a day on a node with 100,000 pods, and see that nothing grows
	$(BIN)/python scripts/soak

bench: $(DEV) ## measure, and write docs/performance.md; GPU_EXPORTER=FILE is nvidia_gpu_exporter to compare with
	@GPU_EXPORTER='$(GPU_EXPORTER)' $(BIN)/python -m benchmarks

bench-fleet: $(DEV) ## measure what looks at large clusters, and at a month, cost Prometheus and the hub, and what reading their pods costs
	@$(BIN)/python -m benchmarks.fleet.looks
	@$(BIN)/python -m benchmarks.fleet.reading
	@$(BIN)/python -m benchmarks.fleet.usage
	@$(BIN)/python -m benchmarks.fleet.usage_rules

image: ## build the container image; IMAGE=name:tag names it, EXTRAS=kubernetes adds to it, ENGINE=buildah chooses
	@engine=$${ENGINE:-$$(command -v docker || command -v podman || command -v buildah)}; [[ $$engine ]] \
		|| { echo >&2 "error: an image is built by docker, podman or buildah, and none is on PATH"; exit 1; }; \
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800); stamp=(); \
	[[ $${engine##*/} == docker ]] || stamp=(--format docker --timestamp "$$SOURCE_DATE_EPOCH"); \
	"$$engine" build "$${stamp[@]}" --build-arg SOURCE_DATE_EPOCH="$$SOURCE_DATE_EPOCH" \
		--build-arg VERSION="$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" \
		--build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
		--build-arg EXTRAS='$(EXTRAS)' --tag '$(IMAGE)' .

lock: ## lock what goes into the image, after a change of dependencies; needs uv
	@deploy/image/lock

clean: ## remove what was made here: the virtual environment, caches, builds
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@scripts/make-venv '$(PYTHON)' $(VENV)

# Installed in place, so that a changed source needs no new installation.
$(RUNTIME): pyproject.toml | $(BIN)/python
	$(PIP) install --editable .
	@touch $@

# Dependency groups came with pip 25.1, and distributions still ship older ones.
$(DEV): pyproject.toml | $(BIN)/python
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install --editable . --group dev
	@touch $(RUNTIME) $@

$(ALL): $(DEV)
	$(PIP) install --group docs --group fuzz
	@touch $@
