# SPDX-License-Identifier: MIT
"""What all pages share: templates, a browser's session, forms that only our own pages can send, errors as pages."""

from __future__ import annotations

import datetime
import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy.orm import Session
from starlette.responses import HTMLResponse, RedirectResponse, Response

from scoring.output import units
from scoring.output.text import one_line, printable
from scoring.serve import accounts
from scoring.serve.api.service import Service, service_of
from scoring.serve.errors import Refused
from scoring.serve.storage.models import Account

HERE = Path(__file__).parent
COOKIE = "session"
STATIC = {name: ((HERE / "static" / name).read_bytes(), kind) for name, kind in (
    ("site.css", "text/css; charset=utf-8"), ("site.js", "text/javascript; charset=utf-8"),
    ("icon.svg", "image/svg+xml"))}
_VERSION = hashlib.sha256(b"".join(content for content, _ in STATIC.values())).hexdigest()[:8]


@dataclass(frozen=True)
class Viewer:
    """Who looks at a page: an account, the organiser, or nobody known."""

    account: Account | None = None
    organiser: bool = False
    secret: str = ""                     # of the session's cookie

    @property
    def csrf(self) -> str:
        """What forms of this session carry; other sites cannot know it."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest() if self.secret else ""


def viewer_of(session: Session, request: Request) -> Viewer:
    """Whose session the request's cookie names."""
    secret = request.cookies.get(COOKIE, "")
    if not secret:
        return Viewer()
    if account := accounts.identify(session, secret, "web"):
        return Viewer(account, secret=secret)
    return Viewer(organiser=True, secret=secret) if accounts.is_organiser(session, secret) else Viewer()


def check_form(request: Request, viewer: Viewer | None, csrf: str) -> None:
    """Raises ``Refused`` (403) for a form that another site sent; ``viewer`` None: before anybody is logged in."""
    origin = request.headers.get("origin")
    if origin not in (None, "null") and origin.partition("://")[2] != request.headers.get("host"):
        raise Refused(403, "this form was sent from another site")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "this form was sent from another site")
    if viewer is not None and not (viewer.csrf and accounts.is_secret(csrf, viewer.csrf)):
        raise Refused(403, "the form is too old, or you are not logged in; load the page again")


def render(request: Request, template: str, viewer: Viewer, status: int = 200, **values: Any) -> HTMLResponse:
    service: Service = service_of(request)
    page = _templates().get_template(template).render(
        viewer=viewer, site=service.title, version=_VERSION, path=request.url.path,
        base=str(request.base_url).rstrip("/"), **values)
    return HTMLResponse(page, status, {"cache-control": "no-store"})


def error_page(request: Request, status: int, detail: str) -> Response:
    """An error for somebody with a browser."""
    return render(request, "error.html.j2", Viewer(), status, code=status, detail=detail)


def go(path: str) -> RedirectResponse:
    """To another page, after a form."""
    return RedirectResponse(path, 303)


def moment(seconds: float | None) -> str:
    """A day and minute in UTC."""
    if seconds is None:
        return ""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def static(name: str) -> Response:
    """The style sheet and the script: two names, and no path of the file system."""
    if name not in STATIC:
        raise Refused(404, "there is nothing at this address")
    content, kind = STATIC[name]
    return Response(content, media_type=kind, headers={"cache-control": "public, max-age=86400"})


_made: list[Environment] = []


def _templates() -> Environment:
    if not _made:
        found = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
                            trim_blocks=True, lstrip_blocks=True)
        found.filters.update(time=units.time, moment=moment, line=lambda text: one_line(str(text)),
                             text=lambda text: printable(str(text)), percent=units.percent, digits=units.digits,
                             size=units.size)
        _made.append(found)
    return _made[0]
