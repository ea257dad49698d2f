# SPDX-License-Identifier: MIT
"""Forms of people who take part: register, log in, submit, their account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from sqlalchemy import select
from starlette.responses import Response

from scoring.popcorn.report import MODES
from scoring.serve import accounts, queue
from scoring.serve.api import submitting, views
from scoring.serve.api.reading import Number
from scoring.serve.api.service import Service, address_of, service_of
from scoring.serve.errors import Refused
from scoring.serve.intake import may_see
from scoring.serve.storage.models import Account, Board
from scoring.serve.web.pages import COOKIE, Viewer, check_form, go, render, viewer_of

router = APIRouter()
Word = Annotated[str, Form(max_length=200)]


@router.get("/login")
def login_page(request: Request) -> Response:
    with service_of(request).database.read() as session:
        return render(request, "login.html.j2", viewer_of(session, request), problem="")


@router.post("/login")
def login(request: Request, token: Word) -> Response:
    """With a person's token, or the organiser's."""
    service = service_of(request)
    check_form(request, None, "")
    token = token.strip()
    with service.database.write() as session:
        account = accounts.identify(session, token)
        organiser = account is None and accounts.is_secret(token, service.admin_token)
        if account is None and not organiser:
            if not service.failed_logins.take(address_of(request)):
                raise Refused(429, "too many wrong tokens; wait a minute")
            return render(request, "login.html.j2", Viewer(), 401, problem="This token is unknown here.")
        secret = accounts.open_session(session, account)
        accounts.log(session, account.name if account else "organiser", "login", "")
    return _with_cookie(service, go("/control" if organiser else "/submit"), secret)


def _with_cookie(service: Service, response: Response, secret: str) -> Response:
    response.set_cookie(COOKIE, secret, max_age=int(accounts.SESSION_SECONDS), httponly=True, samesite="lax",
                        secure=service.secure)
    return response


@router.post("/register")
def register(request: Request) -> Response:
    """A new account; its token is shown once."""
    service = service_of(request)
    check_form(request, None, "")
    if not service.new_accounts.take(address_of(request)):
        raise Refused(429, "too many new accounts from this address; try later")
    with service.database.write() as session:
        account, token = accounts.register(session, active=service.settings.registration == "open")
        secret = accounts.open_session(session, account)
        viewer = Viewer(account, secret=secret)
        note = "Welcome. Keep the token: it is shown once."
        page = render(request, "account.html.j2", viewer, token=token, note=note)
    return _with_cookie(service, page, secret)


@router.post("/logout")
def logout(request: Request, csrf: Word = "") -> Response:
    with service_of(request).database.write() as session:
        viewer = viewer_of(session, request)
        check_form(request, viewer, csrf)
        accounts.close_session(session, viewer.secret)
    response = go("/")
    response.delete_cookie(COOKIE)
    return response


@router.get("/account")
def account_page(request: Request) -> Response:
    with service_of(request).database.read() as session:
        viewer = viewer_of(session, request)
        _known(viewer)
        return render(request, "account.html.j2", viewer, token="", note="")


@router.post("/account/{action}")
def account_form(request: Request, action: str, csrf: Word = "", name: Word = "", code: Word = "") -> Response:
    """rename, renew (the token) or join (with an invite)."""
    service = service_of(request)
    with service.database.write() as session:
        viewer = viewer_of(session, request)
        check_form(request, viewer, csrf)
        account = session.get_one(Account, _known(viewer).id)
        token = note = ""
        if action == "rename":
            accounts.rename(session, account, name.strip())
            note = f"You are {account.name} now."
        elif action == "join":
            boards = accounts.join(session, account, code.strip())
            note = f"You may submit{': ' + ', '.join(boards) if boards else ''}."
        elif action == "renew":
            token = accounts.renew_token(session, account)
            secret = accounts.open_session(session, account)
            page = render(request, "account.html.j2", Viewer(account, secret=secret), token=token,
                          note="The earlier token no longer works.")
            return _with_cookie(service, page, secret)
        else:
            raise Refused(404, "there is nothing at this address")
        return render(request, "account.html.j2", Viewer(account, secret=viewer.secret), token=token, note=note)


def _known(viewer: Viewer) -> Account:
    if viewer.account is None:
        raise Refused(401, "log in first")
    return viewer.account


@router.get("/submit")
def submit_page(request: Request, board: str = "", gpu: str = "") -> Response:
    with service_of(request).database.read() as session:
        viewer = viewer_of(session, request)
        if viewer.account is None:
            return go("/login")
        boards = [each for each in session.scalars(select(Board).where(Board.active).order_by(Board.name))
                  if may_see(session, each, viewer.account)]
        return render(request, "submit.html.j2", viewer, boards=boards, modes=MODES, chosen=f"{board} {gpu}")


@router.post("/submit")
def submit(
    request: Request, file: Annotated[UploadFile, File()], place: Word, mode: Word, csrf: Word = "",
) -> Response:
    service = service_of(request)
    with service.database.write() as session:
        viewer = viewer_of(session, request)
        check_form(request, viewer, csrf)
        board, _, gpu = place.partition(" ")
        row = submitting.take_in(service, session, _known(viewer), board, gpu, mode, file)
        number = row.id
    return go(f"/entries/{number}")


@router.post("/entries/{number}/{action}")
def entry_form(request: Request, number: Number, action: str, csrf: Word = "") -> Response:
    """cancel or delete one's own submission."""
    with service_of(request).database.write() as session:
        viewer = viewer_of(session, request)
        check_form(request, viewer, csrf)
        account = _known(viewer)
        row = views.find_own(session, number, account)
        if action == "cancel":
            queue.cancel(session, row, "by its owner")
            accounts.log(session, account.name, "cancel", str(number))
        elif action == "delete":
            submitting.erase(session, row, account.name)
            return go(f"/people/{account.name}")
        else:
            raise Refused(404, "there is nothing at this address")
    return go(f"/entries/{number}")
