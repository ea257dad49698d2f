# SPDX-License-Identifier: MIT
"""The application: routes, errors as ``{"detail": …}``, and what every answer carries."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from scoring.serve.api import admin, reading, submitting
from scoring.serve.api.limits import Guard
from scoring.serve.api.service import Service
from scoring.serve.errors import Refused

log = logging.getLogger("uvicorn.error")
_WORDS = {404: "there is nothing at this address", 405: "this address does not take this method"}
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "content": {"application/json": {"schema": {
        "type": "object", "required": ["detail"], "properties": {"detail": {"type": "string"}}}}}}
    for code, text in ((400, "not possible"), (401, "unknown token"), (403, "not allowed"), (404, "not there"),
                       (408, "too slow"), (409, "in conflict with what is there"), (413, "too large"),
                       (422, "not as the schema says"), (429, "too often"), (503, "stopped"))}


THREADS = 3      # that answer requests


@contextlib.asynccontextmanager
async def _few_threads(_app: FastAPI) -> AsyncIterator[None]:
    """Requests are answered by few threads: 40 of them, as by default, only take the interpreter from one another."""
    to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


def create_app(service: Service, pages: bool = True) -> FastAPI:
    """The server's application; without ``pages`` its API alone."""
    app = FastAPI(
        title=f"{service.title} contest", version="1", docs_url=None, redoc_url=None, responses=ERRORS,
        description="Submit kernels, have them judged, read the leaderboards. popcorn-cli speaks this.",
        generate_unique_id_function=_operation, lifespan=_few_threads)
    app.state.service = service
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(SQLAlchemyError, _internal)
    app.add_exception_handler(Exception, _internal)
    if pages:
        from scoring.serve.web import site

        site.install(app)
    for router in (reading.router, admin.router, submitting.router):     # the last one takes any three words
        app.include_router(router)
    app.add_middleware(Guard, per_second=service.settings.requests_per_second)
    return app


def _operation(route: APIRoute) -> str:
    return f"{'_'.join(map(str, route.tags))}_{route.name}"


def answer(request: Request, status: int, detail: str) -> Response:
    """An error as the caller can read it."""
    if getattr(request.app.state, "pages", False) and "text/html" in request.headers.get("accept", ""):
        from scoring.serve.web import pages as web

        page: Response = web.error_page(request, status, detail)
        return page
    headers = {"retry-after": "60"} if status == 429 else None
    return JSONResponse({"detail": detail}, status, headers)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return answer(request, error.status, error.detail)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = answer(request, error.status_code, _WORDS.get(error.status_code, str(error.detail)))
    response.headers.update(error.headers or {})
    return response


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]]
    return answer(request, 422, "; ".join(told).encode("ascii", "backslashreplace").decode()[:1000])


def _internal(request: Request, error: Exception) -> Response:
    number = secrets.token_hex(4)
    log.error("error %s in %s %r", number, request.method, request.url.path, exc_info=error)
    return answer(request, 500, f"an error of the server; the organiser finds it in the log as {number}")
