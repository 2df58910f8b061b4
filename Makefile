# Two commands for a fresh machine: `make demo` shows what hotloop does, `make test` proves it.
# Each sets up .venv first; a second call finds it ready.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
# Small tensors on two cores are fastest with one thread, and tests must fit beside each other.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-all check docs clean
.DEFAULT_GOAL := demo

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "hotloop needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Installing python3-venv (Debian ships python3 without it) ..."; \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -qq -y python3-venv; }
	@echo "Setting up .venv (two minutes, once) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

# The tests of pages need a browser. Without apt-get they are skipped, and say so.
BROWSER := .venv/browser
$(BROWSER): $(READY)
	@command -v chromium > /dev/null || ! command -v apt-get > /dev/null || { \
	  echo "Installing chromium, in which the tests open pages ..."; \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -qq -y --no-install-recommends chromium > /dev/null; }
	@touch $(BROWSER)

DEMO_SECONDS ?= 8
DEMO_BUDGET ?= 25
DEMO_OPTIMIZE ?= 15

demo: $(READY)
	@rm -f .hotloop/demo-train.run .hotloop/demo.checkpoint
	@# A training that solves nothing exits with 1; the page then says so.
	@$(BIN)/hotloop train ppo:CartPole-v1 --checkpoint .hotloop/demo.checkpoint --save .hotloop/demo-train.run \
	  || [ -s .hotloop/demo-train.run ]
	@$(BIN)/hotloop evaluate .hotloop/demo.checkpoint
	@$(BIN)/hotloop benchmark ppo:CartPole-v1 --seconds $(DEMO_SECONDS) --save .hotloop/demo-benchmark.run
	@rm -f .hotloop/demo-simplify.run
	@# A restless machine is refused a verdict; the page then says so.
	@$(BIN)/hotloop simplify ppo:CartPole-v1 --budget $(DEMO_BUDGET) --save .hotloop/demo-simplify.run \
	  || [ -s .hotloop/demo-simplify.run ]
	@$(BIN)/hotloop optimize ppo:CartPole-v1 --budget $(DEMO_OPTIMIZE) --write .hotloop/demo-best.yaml
	@$(BIN)/hotloop repeat --target ppo:CartPole-v1
	@$(BIN)/hotloop report .hotloop/demo-train.run .hotloop/demo-benchmark.run .hotloop/demo-simplify.run \
	  --html report.html

check: $(READY)
	@$(BIN)/ruff check --quiet src tests benchmarks examples
	@$(BIN)/ruff format --quiet --check src tests benchmarks examples
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }

# Those marked long are half of the time: `make test TESTS=most`, as .ci/run has it, runs them too.
TESTS ?= short
MARKED_short := not slow and not gpu and not long
MARKED_most := not slow and not gpu

# Four at once on two cores: a fifth of the tests' time is waiting, for processes and for Ray.
# The tests start hundreds of processes, each of which would compile the sources anew.
test: check $(BROWSER)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 4 --dist loadfile -m '$(or $(MARKED_$(TESTS)),$(error TESTS=$(TESTS): expected short or most))'

test-all: check $(BROWSER)
	@PYTHONDONTWRITEBYTECODE= HOTLOOP_TEST_ALL=1 $(BIN)/pytest -n 2 --dist loadfile -m ''

# Into site/index.html. Every warning is an error: a link or an anchor that leads nowhere.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build > .venv/mkdocs.log 2>&1 || { cat .venv/mkdocs.log; exit 1; }

clean:
	rm -rf .venv .hotloop report.html site
