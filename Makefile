# Every target makes its own virtual environment when it is missing: `make demo` works on a fresh machine.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CROHME ?= ../shared/crohme

.PHONY: demo test lint bench chromium clean
.DEFAULT_GOAL := demo

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[train,serve,dev]"
	touch $@

demo: $(VENV)/.ready
	$(BIN)/python examples/demo.py

# The tests of the page drive Debian's chromium; without it they are skipped, and say so.
chromium:
	@command -v chromium >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium for the tests of the page"; \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			chromium fonts-dejavu-core) >/dev/null 2>&1 || echo "chromium could not be installed"; \
	else echo "no chromium: the tests of the page will be skipped"; fi

test: lint chromium
	INK2TEX_CROHME="$(CROHME)" $(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/train_step.py
	$(BIN)/python benchmarks/processes.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
