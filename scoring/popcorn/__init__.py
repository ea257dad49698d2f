# SPDX-License-Identifier: MIT
"""The dialect of GPU MODE. Nothing else in the project knows its spelling; every file re-states one interface of it."""
