# SPDX-License-Identifier: MIT
# Everything sets itself up: the first target called builds .venv, later ones find it unchanged.
PYTHON ?= python3
BIN    := .venv/bin
VENV   := $(BIN)/python
# Tests start hundreds of Pythons, each of which would compile this project's modules again.
unexport PYTHONDONTWRITEBYTECODE
NATIVE := git ls-files '*.c' '*.h' '*.cpp' '*.cu' '*.cuh' '*.hip'

LINTS := lint-python lint-types lint-format lint-native
.PHONY: run test sweep soak lint $(LINTS) format gpu report serve setup help
run: setup  ## compile everything, run and check what can run here, time it
	@$(VENV) -m scoring run $(ARGS)
# The emulators are built first, so that no test's time limit counts it; what they cannot be built of, the tests say.
# A worker of pytest-xdist that dies is not replaced: with loadfile the others would wait for its files for ever.
PYTEST = $(VENV) -m backends.emulator > /dev/null ; $(VENV) -m backends.emulator --cuda > /dev/null ; \
         $(VENV) -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0
test: setup  ## every test but the slow ones
	@$(PYTEST) -m "not slow" $(ARGS)
sweep: setup  ## every test, the slow ones too: large cases of the audit and of the kernels
	@$(PYTEST) $(ARGS)
soak: setup  ## 1,000 hostile judgements, three at a time, a quarter of them killed: nothing may be left
	@$(VENV) -m tests.redteam.soak $(ARGS)
# Side by side: mypy is the longest of the first three and uses one core.
lint: setup  ## check Python and C++ for style, types, warnings and common mistakes
	@$(MAKE) --no-print-directory --keep-going --jobs $(LINTS)
lint-python:
	@$(VENV) -m ruff check .
lint-types:
	@$(VENV) -m mypy
lint-format:
	@$(NATIVE) | xargs $(BIN)/clang-format --dry-run -Werror
lint-native:
	@$(VENV) -m tools.tidy
format: setup  ## format C++, CUDA and HIP; sort Python's imports
	@$(NATIVE) | xargs $(BIN)/clang-format -i
	@$(VENV) -m ruff check --select I --fix .
gpu: setup  ## time the CUDA kernels beside NVIDIA's libraries
	@$(VENV) -m scoring run --backend cuda --peers $(ARGS)
report: setup  ## write report.html from the stored runs
	@$(VENV) -m scoring report $(ARGS)
serve: setup  ## try a contest: a server with example problems on the CPU and the emulated MI300X
	@$(VENV) -m scoring --config examples/contest/config.yaml serve --database build/contest.db --token-file build/organiser-token $(ARGS)
setup:  ## build .venv, once
	@$(PYTHON) tools/setup.py
help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1 \2/p' Makefile | while read -r name what; do printf '%-8s %s\n' "$$name" "$$what"; done
