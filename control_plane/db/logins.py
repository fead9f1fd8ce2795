"""Makes the logins of the processes from the URLs that they will use, where nobody can type SQL (docs/deploying.md).

A login may take one role and inherits nothing. PostgreSQL gets the verifier of a password and not the password, so no
log of a statement can contain it.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from control_plane.db import roles
from control_plane.db.engine import Role

ROLES = {
    "api": Role.API.value,
    "reconciler": Role.RECONCILER.value,
    "admin": Role.ADMIN.value,
    "ingest": Role.INGEST.value,
    "migrate": roles.OWNER,
    "backup": roles.BACKUP,
}
"""Which role the login in a file of that name may take."""
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_SCRAM = re.compile(
    r"SCRAM-SHA-256\$[0-9]{4,6}:[A-Za-z0-9+/]{20,40}={0,2}\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}="
)
_ITERATIONS = 4096


class LoginError(ValueError):
    """A login cannot be made or ended. The message is one sentence, without a password."""


class LoginUrlError(LoginError):
    """A file names no login that can be made."""


@dataclass(frozen=True, slots=True)
class Login:
    name: str
    verifier: str = field(repr=False)
    """What PostgreSQL keeps of its password."""
    role: str


def in_folder(folder: Path) -> list[Login]:
    """The logins that the files of a folder name. Raises LoginUrlError."""
    found = list(_in_folder(folder))
    if not found:
        raise LoginUrlError(
            f"{folder} has none of the files {', '.join(ROLES)}, which hold a login's URL each."
        )
    return found


def _in_folder(folder: Path) -> Iterator[Login]:
    for file, role in ROLES.items():
        path = folder / file
        if not path.exists():
            continue
        url = urlsplit(path.read_text(encoding="utf-8").strip())
        name, password = unquote(url.username or ""), unquote(url.password or "")
        if not _NAME.fullmatch(name) or name in roles.ALL:
            raise LoginUrlError(f"{path} must hold a URL with a login such as {file}_login.")
        if not password or not password.isascii() or not password.isprintable():
            raise LoginUrlError(
                f"{path} must hold a URL with a password of ASCII characters, percent-encoded."
            )
        yield Login(name, _verifier(password), role)


def described(file: str, name: str, verifier: str) -> Login:
    """A login that no file names yet, by what PostgreSQL is to keep of its password. Raises LoginError."""
    if file not in ROLES or not _NAME.fullmatch(name) or name in roles.ALL:
        raise LoginError(f"{file} {name} is no login of a process, such as api api_login_2.")
    if not _SCRAM.fullmatch(verifier):
        raise LoginError("A login is described with the SCRAM-SHA-256 verifier of its password.")
    return Login(name, verifier, ROLES[file])


async def make(url: str, logins: Sequence[Login]) -> list[str]:
    """Make the logins, or give those that are there the password of their URL. Returns what was done, a sentence each.

    The login of `url` needs CREATEROLE and owns the database, such as the first user of a managed PostgreSQL. Roles
    that are missing are made as well, so this may run before the first migration.
    """
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    try:
        async with engine.begin() as connection:
            await roles.take_ownership(connection)
            await roles.give_ownership_back(connection)
            done = []
            for login in logins:
                there = await connection.execute(
                    text("SELECT 1 FROM pg_roles WHERE rolname = :name"), {"name": login.name}
                )
                verb = "ALTER" if there.all() else "CREATE"
                await connection.exec_driver_sql(
                    f"{verb} ROLE \"{login.name}\" LOGIN NOINHERIT PASSWORD '{login.verifier}'"
                )
                await connection.execute(text(f'GRANT {login.role} TO "{login.name}"'))
                made = "made" if verb == "CREATE" else "was there, and has the password of its URL"
                done.append(f"{login.name}, which may take {login.role}: {made}.")
            return done
    finally:
        await engine.dispose()


async def end(url: str, name: str, kept: Sequence[Login]) -> str:
    """Close the connections of a login that no process uses any more, and drop it. Returns a sentence of what was done.

    It must be a login like those that `make` makes, and none of `kept`. Raises LoginError.
    """
    if name in {login.name for login in kept}:
        raise LoginError(f"{name} is the login of a process: its file names it.")
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    try:
        async with engine.begin() as connection:
            found = await connection.execute(_MAY_TAKE, {"name": name})
            taken = found.scalar_one_or_none()
            if taken is None:
                return f"{name}: there is no such login."
            if not _NAME.fullmatch(name) or not set(taken) or not set(taken) <= set(ROLES.values()):
                raise LoginError(
                    f"{name} is no login of a process: it may take {', '.join(taken) or 'no role'}."
                )
            await connection.exec_driver_sql(f'ALTER ROLE "{name}" NOLOGIN')
        async with engine.begin() as connection:
            # Without its timeout it would not wait, and a role with connections could be dropped under them.
            await connection.execute(_TERMINATE, {"name": name})
            await connection.exec_driver_sql(f'DROP ROLE "{name}"')
        return f"{name}: ended."
    finally:
        await engine.dispose()


_MAY_TAKE = text("""
SELECT array_remove(array_agg(CAST(taken.rolname AS text)), NULL) FROM pg_roles login
LEFT JOIN pg_auth_members membership ON membership.member = login.oid
LEFT JOIN pg_roles taken ON taken.oid = membership.roleid
WHERE login.rolname = :name GROUP BY login.oid
""")
_TERMINATE = text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = :name")


def _verifier(password: str) -> str:
    """What PostgreSQL keeps of a password: SCRAM-SHA-256 of RFC 7677, as its manual lays it out for pg_authid."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${_ITERATIONS}:{encoded[0]}${encoded[1]}:{encoded[2]}"
