# Every target installs first when .venv is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := medical,video,stereo,report,compare,cluster,zoo,train,onnx,lightning,docs,dev
# Two torch threads per test process would only fight for the same cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal
# CPUs that any larger one can imitate. Where oneDNN has AMX, torch without vectors cannot pack what it reads.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
PLAIN := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16

.DELETE_ON_ERROR:
.PHONY: help install demo test test-all hardware browser lint docs bench dist clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 12

install: $(STAMP)  ## Make .venv with ranp, every extra and the tools

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

demo: $(STAMP)  ## Prune and train a small 3D-UNet, full against slim ones of one budget (minutes)
	$(BIN)/ranp demo --out runs/demo

lint: $(STAMP)  ## Style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# What takes one core goes side by side.
test: $(STAMP)  ## Lint and the ordinary tests
	$(MAKE) -j 2 -O lint hardware
	$(PYTEST) -m "not slow"

test-all: $(STAMP) browser  ## Lint and every test, those in a real browser too
	$(MAKE) -j 2 -O lint hardware
	$(PYTEST)

hardware: $(foreach cpu,avx2 plain,$(foreach threads,1 2,hardware-$(cpu)-$(threads)))  ## The tests that depend on the CPU, as on one with AVX2 and as torch runs without vectors

hardware-%: $(STAMP)
	env $(if $(findstring avx2,$*),$(AVX2),$(PLAIN)) OMP_NUM_THREADS=$(lastword $(subst -, ,$*)) OMP_WAIT_POLICY=passive \
	  $(BIN)/python -m pytest -q -m hardware $$(grep -rl --include='*.py' mark.hardware tests)

# Where nothing can be installed, the tests that need a browser are skipped, and say so.
browser: $(STAMP)  ## Get Chromium (Debian) and playwright, for the tests of the report in a real browser
	command -v chromium > /dev/null || { test "$$(id -u)" = 0 || sudo=sudo; \
	  $$sudo apt-get update && $$sudo apt-get install -y --no-install-recommends chromium; } || \
	  echo "no chromium: the browser tests will be skipped"
	$(BIN)/python -c "import playwright" 2> /dev/null || $(BIN)/python -m pip install -c constraints.txt -e ".[browser]"

docs: $(STAMP)  ## Build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(STAMP)  ## Ratios side by side with the peers
	$(BIN)/python -m benchmarks

# The wheel is built from the sdist, and tried where nothing of the checkout can be imported.
dist:  ## Build sdist and wheel into dist/, and run the quickstart with the wheel in a clean environment
	rm -rf dist build/dist
	$(PYTHON) -m venv build/dist/tools
	build/dist/tools/bin/python -m pip install build
	build/dist/tools/bin/python -m build --outdir dist
	$(PYTHON) -m venv build/dist/clean
	build/dist/clean/bin/python -m pip install -c constraints.txt torch==2.13.0
	build/dist/clean/bin/python -m pip install -c constraints.txt dist/ranp-*.whl
	work=$$(mktemp -d) && sed -n '/^```python$$/,/^```$$/{/^```/!p;}' docs/quickstart.md > $$work/quickstart.py && \
	  cd $$work && $(CURDIR)/build/dist/clean/bin/python quickstart.py && $(CURDIR)/build/dist/clean/bin/ranp --version && rm -r $$work

clean:  ## Remove .venv, runs, caches and builds
	rm -rf $(VENV) runs dist build site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
