# make demo         install into .venv, then run the whole pipeline on the embedded sample
# make test         install into .venv, then run the tests
# make test-all     the same with the optional extras, whose tests make test skips
# make check        lint, types, docs, prose, links
# make docs         write the generated parts of the documentation
# make results      run the experiments of docs/results.md (hours; S2BL_DATA names the folder of the datasets)
# make bench        measure speed and memory, compared with other tools and lower bounds
# make wheel        build the wheel, install it into an empty environment and run it there
# make lock         write constraints.txt with the newest versions
# make test-latest  run the tests with the newest versions, in .venv-latest
# make test-oldest  run the tests with the lowest versions that pyproject.toml allows, in .venv-oldest

# The interpreters for which every package in constraints.txt has wheels; make lock checks this.
export PYTHONS := 3.11 3.12 3.13 3.14
export PYTHON

BIN     := .venv/bin
UV      := $(BIN)/uv
PYTEST  := -m pytest -q -n 2 -rs
INSTALL := @sh tools/install.sh
RESOLVE := $(UV) pip compile pyproject.toml --extra dev --extra ray --quiet --no-annotate --refresh --upgrade
NEWEST  := $(RESOLVE) --universal --python-version 3.11 --custom-compile-command 'make lock'

.PHONY: install demo test test-all check docs results bench wheel lock test-latest test-oldest clean

install:
	$(INSTALL) .venv constraints.txt

demo: install
	PATH="$(CURDIR)/$(BIN):$$PATH" sh sample_data/demo.sh

test: install
	$(BIN)/python $(PYTEST)

test-all:
	$(INSTALL) .venv constraints.txt --editable '.[dev,ray]'
	$(BIN)/python $(PYTEST)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/check_prose.py
	$(BIN)/python docs/check_links.py

docs: install
	$(BIN)/python docs/generate.py

results: install
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/results.py

bench: install
	$(BIN)/python bench/files.py
	$(BIN)/python bench/make_logs.py
	$(BIN)/python bench/train.py
	$(BIN)/python bench/estimators.py

wheel: install
	sh tools/test-wheel.sh

# Not `install`, which fails if pyproject.toml needs a package that constraints.txt does not have yet.
$(UV):
	$(INSTALL) .venv constraints.txt

lock: $(UV)
	$(NEWEST) --output-file constraints.txt
	for version in $(PYTHONS); do \
	    $(RESOLVE) --constraints constraints.txt --only-binary :all: --python-version $$version > /dev/null || exit 1; \
	done

test-latest: $(UV)
	mkdir -p build
	$(NEWEST) --output-file build/latest.txt
	$(INSTALL) .venv-latest build/latest.txt
	.venv-latest/bin/python $(PYTEST)

# With Python 3.11: the lowest versions have no wheels for the newer ones.
test-oldest: PYTHONS := 3.11
test-oldest: $(UV)
	mkdir -p build
	$(RESOLVE) --resolution lowest-direct --python-version 3.11 --output-file build/oldest.txt
	$(INSTALL) .venv-oldest build/oldest.txt
	.venv-oldest/bin/python $(PYTEST)

clean:
	rm -rf .venv .venv-latest .venv-oldest .venv-wheel demo build dist *.egg-info
