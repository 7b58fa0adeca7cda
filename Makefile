# Everything goes through here; `make help` lists it. Needs make and Python 3.11 or later, nothing else.
.DEFAULT_GOAL := help
SHELL := /bin/sh
.SUFFIXES:

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --prefer-binary
# Which Python makes .venv: make PYTHON=python3.12 setup
PYTHON ?=
# Arguments for the tool behind a target: make test ARGS="-k dead_letters"
ARGS ?=

.PHONY: help run setup setup-dev test test-long bench lint format demo-reset clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  PORT=8001 make run         another port than 8000"
	@echo "  PYTHON=python3.12 make …   the Python that makes .venv"
	@echo "  ARGS=\"-k name\" make test   arguments for the tool behind a target (-n 2: two tests at a time)"

run: setup ## Start everything here, until Ctrl-C: servers, pages, dispatcher, workers, example runs
	@exec $(PY) manage.py up $(ARGS)

setup: $(VENV)/.installed ## Make .venv and install what Switchyard needs
setup-dev: $(VENV)/.installed-dev ## The same, and what the tests need

test: setup-dev ## Unit, real-broker, fault and browser tests (REQUIRE_BROWSER=1: fail without Chromium)
	@exec $(PY) -m pytest $(ARGS)

test-long: setup-dev ## Soak, large data, long fault runs
	@exec $(PY) -m pytest -m long $(ARGS)

bench: setup-dev ## Switchyard against its peers: a table and JSON
	@exec $(PY) -m bench $(ARGS)

lint: setup-dev ## ruff, mypy, djlint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m djlint templates --lint --quiet

format: setup-dev ## Put imports and layout in order
	$(PY) -m ruff check --fix-only --select I .
	$(PY) -m ruff format .

demo-reset: setup ## Stop the private servers and delete their data and the sign-ins
	$(PY) manage.py services reset --yes

clean: ## Delete .venv and what the tools cached; data in .local stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made whole or not at all: a Python that is too old is refused before anything is written.
$(PY):
	@python=""; \
	for each in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.14 python); do \
	  if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python="$$each"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  found=$$($(or $(PYTHON),python3) --version 2>&1 | head -n 1); \
	  echo "error: Switchyard needs Python 3.11 or later; found: $${found:-none}. Name another: make PYTHON=/path/to/python3.12 setup" >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	  echo "error: $$python has no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version)" >&2; \
	rm -rf $(VENV); \
	"$$python" -m venv $(VENV) || { rm -rf $(VENV); echo "error: $(VENV) could not be made; the reason is above" >&2; exit 1; }

# Again only when the list of packages changed.
$(VENV)/.installed: requirements.txt | $(PY)
	@echo "installing the packages of requirements.txt into $(VENV)" >&2
	@$(PIP) -r requirements.txt || { echo "error: pip could not install requirements.txt; the reason is above" >&2; exit 1; }
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements.txt | $(PY)
	@echo "installing the packages of requirements-dev.txt into $(VENV)" >&2
	@$(PIP) -r requirements-dev.txt || { echo "error: pip could not install requirements-dev.txt; the reason is above" >&2; exit 1; }
	@touch $@ $(VENV)/.installed
