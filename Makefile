# make demo   install into .venv, then run the whole path on the embedded sample
# make test   install into .venv, then run the tests
# make check  lint, types, docs
# make bench  speed and memory beside peers and floors
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.s2bl-ready

.PHONY: install demo test check docs bench clean

install: $(READY)

demo: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" sh sample_data/demo.sh

test: $(READY)
	$(BIN)/python -m pytest -q -n 2

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

bench: $(READY)
	$(BIN)/python bench/files.py
	$(BIN)/python bench/make_logs.py
	$(BIN)/python bench/train.py
	$(BIN)/python bench/estimators.py

docs: $(READY)
	$(BIN)/python docs/generate.py

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) demo build dist *.egg-info
