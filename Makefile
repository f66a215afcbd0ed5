# Set-up is part of every target: it is done once, remembered in $(VENV)/.done, and repeated when pyproject.toml changes.
#   PYTHON=/path/to/python3.12   the interpreter to build on     VENV=folder   where the environment is
#   PYTESTFLAGS='-k at -x'       more for pytest                 LABFLAGS=...  more for JupyterLab

VENV ?= .venv
PYTHON ?=
PYTESTFLAGS ?=
LABFLAGS ?=

PY := $(VENV)/bin/python
DONE := $(VENV)/.done
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: help demo test test-exhaustive lab lint docs bench java clean distclean
.DEFAULT_GOAL := help

help:  ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

demo: $(DONE)/demo java  ## stream a year of flights and look into the queries' state, live and past
	@$(PY) -m streamstate.tutorials.demo

# The tests start Spark more than a hundred times: with its classes in an archive, and compiled quickly rather than well;
# that compiler's own 48 MB for code are too few. Hadoop starts a chmod or readlink for each file: without a helper process.
QUICK_JAVA = -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m \
	-Djdk.lang.Process.launchMechanism=VFORK -XX:SharedArchiveFile=$(abspath $(DONE))/spark.jsa -Xlog:disable

PYTEST = SPARK_SUBMIT_OPTS="$(QUICK_JAVA)" $(PY) -m pytest --numprocesses 2

test: $(DONE)/dev $(DONE)/spark.jsa java  ## run the tests
	@browser=$$(scripts/chromium $(PY)) && \
	STREAMSTATE_CHROMIUM="$$browser" $(PYTEST) --dist loadfile --no-loadscope-reorder $(PYTESTFLAGS)

test-exhaustive: $(DONE)/dev $(DONE)/spark.jsa java  ## run the cases that the tests leave out for the sake of time
	@$(PYTEST) --dist worksteal -m exhaustive $(PYTESTFLAGS)

lab: $(DONE)/lab java  ## open JupyterLab at the first tutorial
	@$(PY) -m jupyterlab $$([ "$$(id -u)" != 0 ] || echo --allow-root) $(LABFLAGS) tutorials/00_quickstart.ipynb

lint: $(DONE)/dev  ## ruff and mypy, strict
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) scripts/typecheck.py

docs: $(DONE)/dev  ## build the documentation into build/site
	@$(PY) -m sphinx --builder html --quiet --fail-on-warning --keep-going --doctree-dir build/doctrees docs build/site
	@echo "Open build/site/index.html"

bench: $(DONE)/dev java  ## run the benchmarks
	@$(PY) -m benchmarks $(BENCHFLAGS)

clean:  ## remove what was built, and the caches
	@rm -rf docs/reference/*/*.rst docs/start/tutorials.md build dist streamstate.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path '*/.venv*' -prune -exec rm -rf {} +

distclean: clean  ## remove the environment as well
	@rm -rf $(VENV)

# Asked every time: it takes half a second, and a Java can go away.
java: | $(DONE)/venv
	@$(PY) -m streamstate.java

$(DONE)/spark.jsa: $(DONE)/dev | java
	@$(PY) scripts/spark_classes.py $@

$(DONE)/venv:
	@scripts/make-venv $(VENV) $(PYTHON)
	@mkdir -p $(DONE) && touch $@

$(DONE)/demo: extras = tutorials,jdk
$(DONE)/lab: extras = lab,tutorials,jdk
$(DONE)/dev: extras = lab,tutorials,jdk,test,lint,bench,docs
$(DONE)/demo $(DONE)/lab $(DONE)/dev: pyproject.toml | $(DONE)/venv
	@echo "Installing streamstate[$(extras)] into $(VENV): a few minutes the first time."
	@$(INSTALL) --editable '.[$(extras)]'
	@touch $@
