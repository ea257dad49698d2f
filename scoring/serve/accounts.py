# SPDX-License-Identifier: MIT
"""Who submits: accounts, tokens, browser sessions, invites and bans. Tokens are kept as digests only."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence

from sqlalchemy import bindparam, delete, insert, or_, select
from sqlalchemy.orm import Session

from scoring.serve.errors import Refused
from scoring.serve.storage.models import Account, Audit, Board, Invite, Member, Token

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,31}")
SESSION_SECONDS = 14 * 86400.0
_OWNER = (select(Account).join(Token, Token.account_id == Account.id)      # made once: every request asks it
          .where(Token.digest == bindparam("digest"), Token.kind == bindparam("kind"),
                 or_(Token.expires.is_(None), Token.expires >= bindparam("now"))))


def digest_of(token: str) -> str:
    """What is kept of a token: it has 128 random bits or more, so a plain hash cannot be searched."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_secret(given: str, secret: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return bool(secret) and hmac.compare_digest(digest_of(given), digest_of(secret))


def register(session: Session, active: bool) -> tuple[Account, str]:
    """A new account under a name of its own, and the token that is shown once."""
    token = secrets.token_hex(20)
    account = Account(name=f"player-{secrets.token_hex(4)}", created=time.time(), active=active)
    session.add(account)
    session.flush()
    session.add(Token(digest=digest_of(token), account_id=account.id, kind="cli", created=time.time()))
    log(session, account.name, "register", "")
    return account, token


def identify(session: Session, token: str, kind: str = "cli") -> Account | None:
    """Whose token it is; None for an unknown or expired one."""
    return session.scalar(_OWNER, {"digest": digest_of(token), "kind": kind, "now": time.time()})


def open_session(session: Session, account: Account | None) -> str:
    """A browser's session for an account, or for the organiser (None): the secret of its cookie."""
    session.execute(delete(Token).where(Token.expires < time.time()))
    secret, now = secrets.token_urlsafe(32), time.time()
    session.add(Token(digest=digest_of(secret), account_id=account.id if account else None, created=now,
                      kind="web" if account else "admin", expires=now + SESSION_SECONDS))
    return secret


def is_organiser(session: Session, secret: str) -> bool:
    """Whether a cookie's secret is of a session of the organiser."""
    found = session.get(Token, digest_of(secret))
    return found is not None and found.kind == "admin" and (found.expires or 0) > time.time()


def close_session(session: Session, secret: str) -> None:
    session.execute(delete(Token).where(Token.digest == digest_of(secret), Token.kind != "cli"))


def renew_token(session: Session, account: Account) -> str:
    """A new token for an account; the earlier ones and all its sessions end."""
    session.execute(delete(Token).where(Token.account_id == account.id))
    token = secrets.token_hex(20)
    session.add(Token(digest=digest_of(token), account_id=account.id, kind="cli", created=time.time()))
    log(session, account.name, "renew-token", "")
    return token


def rename(session: Session, account: Account, name: str) -> None:
    """Raises ``Refused`` for a name that is taken or not plain."""
    if not NAME.fullmatch(name):
        raise Refused(400, "a name has 2 to 32 letters, digits, '_', '.' or '-', and begins with a letter or digit")
    taken = session.scalar(select(Account).where(Account.name.ilike(name.replace("_", r"\_"), escape="\\")))
    if taken is not None and taken.id != account.id:
        raise Refused(409, f"the name {name} is taken")
    log(session, account.name, "rename", name)
    account.name = name


def create_invites(session: Session, boards: Sequence[str], count: int) -> list[str]:
    """Codes for one person each. Raises ``Refused`` for a board that does not exist."""
    known = set(session.scalars(select(Board.name).where(Board.active)))
    if missing := sorted(set(boards) - known):
        raise Refused(404, f"no leaderboard {', '.join(missing)}")
    codes = [secrets.token_urlsafe(12) for _ in range(count)]
    session.add_all(Invite(code=code, boards=list(boards), created=time.time()) for code in codes)
    return codes


def join(session: Session, account: Account, code: str) -> list[str]:
    """Use an invite: the account may submit, and enter its boards; their names. Raises ``Refused``."""
    invite = session.scalar(select(Invite).where(Invite.code == code).with_for_update())
    if invite is None:
        raise Refused(404, "no such invite")
    if invite.used_by is not None and invite.used_by != account.id:
        raise Refused(409, "the invite has been used")
    if account.banned:
        raise Refused(403, "this account is banned")
    invite.used_by, invite.used_at, account.active = account.id, time.time(), True
    for board in session.scalars(select(Board).where(Board.name.in_(invite.boards))):
        if session.get(Member, (account.id, board.id)) is None:
            session.add(Member(account_id=account.id, board_id=board.id))
    log(session, account.name, "join", ", ".join(invite.boards))
    return list(invite.boards)


def find(session: Session, who: str) -> Account:
    """An account by its name or number. Raises ``Refused``."""
    found = session.scalar(select(Account).where(Account.name == who))
    if found is None and who.isascii() and who.isdigit() and len(who) < 10:
        found = session.get(Account, int(who))
    if found is None:
        raise Refused(404, "no such user")
    return found


def log(session: Session, actor: str, action: str, detail: str) -> None:
    """One line of the audit log."""
    session.execute(insert(Audit), {"at": time.time(), "actor": actor, "action": action, "detail": detail[:500]})
