# SPDX-License-Identifier: MIT
# Everything sets itself up: the first target called builds .venv, later ones find it unchanged.
PYTHON ?= python3
VENV   := .venv/bin/python

.PHONY: run test lint gpu report setup
run: setup ; @$(VENV) -m scoring run $(ARGS)
# The emulator is built first, so that no test's time limit counts it; what it cannot be built of, the tests say.
# A worker of pytest-xdist that dies is not replaced: with loadfile the others would wait for its files for ever.
test: setup ; @$(VENV) -m backends.emulator > /dev/null ; $(VENV) -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(ARGS)
lint: setup ; @$(VENV) -m ruff check . && $(VENV) -m mypy
gpu: setup ; @$(VENV) -m scoring run --backend cuda --peers $(ARGS)
report: setup ; @$(VENV) -m scoring report $(ARGS)
setup: ; @$(PYTHON) tools/setup.py
