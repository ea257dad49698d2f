# SPDX-License-Identifier: MIT
"""What every request needs: the database, the settings, and who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Header, Request
from sqlalchemy.orm import Session

from scoring.config.schema import Serve
from scoring.serve import accounts
from scoring.serve.api.limits import Buckets
from scoring.serve.catalogue import Entry
from scoring.serve.errors import Refused
from scoring.serve.storage.database import Database
from scoring.serve.storage.models import Account


@dataclass
class Service:
    """The running server. ``reload`` reads the boards of the settings again; ``poll_seconds``: between two looks at
    a submission that somebody watches."""

    database: Database
    settings: Serve
    admin_token: str = ""
    reload: Callable[[], Iterable[Entry]] | None = None
    secure: bool = False                  # behind HTTPS: cookies are for it alone
    poll_seconds: float = 1.0
    status_seconds: float = 15.0
    title: str = "warpwave"
    new_accounts: Buckets = field(init=False)
    failed_logins: Buckets = field(init=False)

    def __post_init__(self) -> None:
        hourly = self.settings.accounts_per_hour
        self.new_accounts = Buckets(hourly / 3600.0, hourly)
        self.failed_logins = Buckets(0.2, 20)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


CliId = Annotated[str | None, Header(alias="X-Popcorn-Cli-Id", max_length=200)]
WebId = Annotated[str | None, Header(alias="X-Web-Auth-Id", max_length=200)]
Bearer = Annotated[str | None, Header(alias="Authorization", max_length=300)]


def who(session: Session, cli_id: str | None, web_id: str | None = None) -> Account:
    """The account that a token names. Raises ``Refused``: 400 without a token, 401 for an unknown one."""
    token = web_id or cli_id
    if not token:
        raise Refused(400, "the header X-Popcorn-Cli-Id is missing; popcorn-cli register gets a token")
    account = accounts.identify(session, token)
    if account is None:
        raise Refused(401, "this token is unknown to this server; popcorn-cli reregister gets another")
    return account


def who_if_any(session: Session, cli_id: str | None, web_id: str | None = None) -> Account | None:
    """The account that a token names; None without one. Raises ``Refused`` for an unknown one."""
    return who(session, cli_id, web_id) if cli_id or web_id else None


def check_organiser(service: Service, request: Request, bearer: str | None) -> None:
    """Raises ``Refused`` (401) unless the request shows the organiser's token."""
    scheme, _, token = (bearer or "").partition(" ")
    if scheme.lower() != "bearer" or not accounts.is_secret(token.strip(), service.admin_token):
        if not service.failed_logins.take(address_of(request)):
            raise Refused(429, "too many wrong tokens; wait a minute")
        raise Refused(401, "the organiser's token is missing or wrong")
