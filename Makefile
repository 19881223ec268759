# lab, bench, doctor, test, notebooks, check, book, clean. Each sets up .venv first when it is missing or out of date.
# Written for GNU Make 3.81 (what macOS ships) and later.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONFIG ?= compare
OUT ?= results/$(notdir $(basename $(CONFIG)))-$(shell date +%Y%m%d-%H%M%S)
ARGS ?=
# What tests/browser looks for, and the file that names the system.
BROWSERS ?= chromium chromium-browser google-chrome
OS_RELEASE ?= /etc/os-release

# The range of pyproject.toml's requires-python.
PYTHON_FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11 python)

# A repository that was moved or copied holds an environment which still points at the old place.
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell cat $(STAMP)),$(CURDIR))
$(STAMP): moved
endif
endif

.PHONY: help lab bench doctor test notebooks browser check book clean moved

help:
	@echo "make lab                      open the course in JupyterLab"
	@echo "make bench                    measure this machine (CONFIG=NAME picks benchmarks/configs/NAME.yaml, OUT=DIR)"
	@echo "make doctor                   check this machine, and say how to mend what is wrong"
	@echo "make test                     run every check and test"
	@echo "make notebooks                generate the notebooks from sources/"
	@echo "make check                    ask whether the notebooks are what sources/ generates"
	@echo "make book                     make a site of the whole course in build/book/ (runs what has changed)"
	@echo "make clean                    remove .venv and caches; results and answers stay"
	@echo "ARGS='...' is passed on, PYTHON=python3.12 picks the Python of a new .venv"

lab: $(STAMP)
	@exec $(BIN)/mgpu lab $(ARGS)

bench: $(STAMP)
	@exec $(BIN)/mgpu bench --config "$(if $(filter %.yaml,$(CONFIG)),$(CONFIG),benchmarks/configs/$(CONFIG).yaml)" --out "$(OUT)" $(ARGS)

doctor: $(STAMP)
	@exec $(BIN)/mgpu doctor $(ARGS)

test: $(STAMP) browser
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mgpu notebooks check
	@$(BIN)/pytest --numprocesses 2 --dist loadfile $(ARGS)

# Only root on Debian gets one, as in a container: on anybody's own machine `make test` installs no system package.
browser:
	@for name in $(BROWSERS); do if command -v $$name >/dev/null 2>&1; then exit 0; fi; done; \
	if ! grep -qs '^ID=debian' $(OS_RELEASE) || [ "`id -u`" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then \
		echo "No Chromium here, so the browser tests are skipped; on Debian, install the package chromium."; exit 0; \
	fi; \
	echo "Installing Chromium for the browser tests, with apt-get."; \
	patience="-o Acquire::Retries=1 -o Acquire::http::Timeout=30"; \
	if ! said=`{ apt-get update -qq $$patience && DEBIAN_FRONTEND=noninteractive \
			apt-get install -qq $$patience -y --no-install-recommends chromium; } 2>&1`; then \
		echo "It could not be installed, so the browser tests are skipped: `printf '%s' "$$said" | tail -n 1`"; \
	fi

notebooks: $(STAMP)
	@exec $(BIN)/mgpu notebooks build --execute $(ARGS)

check: $(STAMP)
	@exec $(BIN)/mgpu notebooks check $(ARGS)

book: $(STAMP)
	@exec $(BIN)/mgpu book $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .venv/.installing marks an installation that has begun and holds the number of the shell that does it. Where that shell
# lives, it is at work; where not, nothing in .venv is to be trusted. ps tells it from a later process of the same number.
$(STAMP): pyproject.toml constraints.txt
	@set -eu; \
	pid=`sed -n '1s/^\([1-9][0-9]*\)$$/\1/p' $(VENV)/.installing 2>/dev/null || true`; \
	if [ -n "$$pid" ] && kill -0 "$$pid" 2>/dev/null; then \
		runs=`ps -ww -o args= -p "$$pid" 2>/dev/null` || runs=.installing; \
		case "$$runs" in *.installing*) \
			echo "Another make is installing the course into $(VENV) at this moment (process $$pid): wait until it has ended, then run this again." >&2; \
			exit 1 ;; \
		esac; \
	fi; \
	if [ -e $(VENV)/.installing ] || { [ -e $(VENV) ] && ! $(BIN)/python -c '$(PYTHON_FITS)' 2>/dev/null; }; then \
		echo "Removing $(VENV): its installation did not finish, or its Python does not fit."; \
		rm -rf $(VENV); \
	fi; \
	if [ ! -e $(VENV) ]; then \
		python=; found=; \
		for candidate in $(CANDIDATES); do \
			if version=`"$$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null`; then \
				found="$$found $$candidate is $$version."; \
				if "$$candidate" -c '$(PYTHON_FITS)'; then python="$$candidate"; break; fi; \
			else \
				found="$$found $$candidate does not run."; \
			fi; \
		done; \
		if [ -z "$$python" ]; then \
			echo "The course needs Python 3.11, 3.12 or 3.13, and found none:$$found" \
				"Choose another like this: make lab PYTHON=python3.12" >&2; \
			exit 1; \
		fi; \
		mkdir $(VENV); echo $$$$ > $(VENV)/.installing; \
		echo "Making $(VENV) with $$python $$version."; \
		if ! "$$python" -m venv $(VENV) >$(VENV)/install.log 2>&1; then \
			cat $(VENV)/install.log >&2; \
			echo "$$python could not make a virtual environment; on Debian and Ubuntu the package python3-venv is missing." >&2; \
			exit 1; \
		fi; \
	fi; \
	echo "Installing the course into $(VENV): one to ten minutes, once. What pip does is in $(VENV)/install.log"; \
	echo $$$$ > $(VENV)/.installing; \
	rm -f $(STAMP); \
	if ! $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
			-c constraints.txt -e '.[test]' >$(VENV)/install.log 2>&1; then \
		grep -i '^ *error' $(VENV)/install.log >&2 || tail -n 20 $(VENV)/install.log >&2; \
		echo "The installation failed: the reason stands above, the details in $(VENV)/install.log. Run the same command again to retry." >&2; \
		exit 1; \
	fi; \
	rm -f $(VENV)/.installing; \
	printf '%s\n' "$(CURDIR)" > $(STAMP)
