# SPDX-License-Identifier: MIT
"""Puts the pages into an application."""

from __future__ import annotations

from fastapi import FastAPI

from scoring.serve.web import control, forms, pages, public


def install(app: FastAPI) -> None:
    """Add the pages, and show errors to browsers as pages."""
    app.state.pages = True
    app.add_api_route("/static/{name}", pages.static, methods=["GET"], include_in_schema=False)
    for router in (public.router, forms.router, control.router):
        app.include_router(router, include_in_schema=False)
