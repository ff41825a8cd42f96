# README.md's commands and the longer proofs.  Each target installs what it needs (.ci/prepare).
VENV ?= .venv
PY = $(VENV)/bin/python
export VENV
# Containers often set it; a mount starts two interpreters, and compiling is a third of what that costs.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check soak writes workloads bench manual lock install-service clean

demo:        ## the main job on an embedded S3 server, with real data
	@.ci/prepare demo
	@$(PY) examples/demo.py

test:        ## every test; needs root (or sudo) once, for packages, and /dev/fuse
	@.ci/prepare test
	@$(if $(PYTEST_ARGS),$(PY) -m pytest $(PYTEST_ARGS),.ci/parts $(PY))

check:       ## style, types, layering, size caps
	@.ci/prepare test
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(PY) -m pytest -q -p no:cacheprovider tests/check

soak:        ## 20 minutes of readers under faults (SOAK_SECONDS), 10 of mixed work (MIXED_SECONDS), the disk cache, takeovers, the units under a systemd, 100 mounts
	@.ci/prepare test
	@$(PY) -m pytest -m soak -s -o addopts="--strict-markers --strict-config -ra" -o faulthandler_timeout=0 --ignore=tests/soak/test_writes.py tests/soak

writes:      ## a million steps (WRITES_STEPS) of random programs that write, on a mount and on a local directory
	@.ci/prepare test
	@$(PY) -m pytest -m soak -s -o addopts="--strict-markers --strict-config -ra" -o faulthandler_timeout=0 tests/soak/test_writes.py

workloads:   ## unmodified training programs (tests/workloads) on a mount with --rw; 6 GB of libraries
	@.ci/prepare test
	@$(PY) -m tests.workloads

bench:       ## the numbers of docs/performance.md
	@.ci/prepare test,bench
	@$(PY) -m benchmarks.read
	@$(PY) -m benchmarks.metadata
	@$(PY) -m benchmarks.cache

manual:      ## man pages and shell completion in share/, from the options
	@.ci/prepare test
	@$(PY) .ci/manual.py .

lock:        ## requirements.lock, from pyproject.toml and constraints.txt
	@.ci/lock $(VENV)

install-service: ## as root: the program, its units, man pages, completion and an example; DESTDIR, PREFIX
	@.ci/install-service

clean:
	rm -rf $(VENV) $(VENV)-peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
