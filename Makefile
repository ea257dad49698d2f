# SPDX-License-Identifier: MIT
# Everything sets itself up: the first target called builds .venv, later ones find it unchanged.
PYTHON ?= python3
VENV   := .venv/bin/python

.PHONY: run test lint gpu report setup
run: setup ; @$(VENV) -m scoring run $(ARGS)
test: setup ; @$(VENV) -m pytest $(ARGS)
lint: setup ; @$(VENV) -m ruff check . && $(VENV) -m mypy
gpu: setup ; @$(VENV) -m scoring run --backend cuda --peers $(ARGS)
report: setup ; @$(VENV) -m scoring report $(ARGS)
setup: ; @$(PYTHON) tools/setup.py
