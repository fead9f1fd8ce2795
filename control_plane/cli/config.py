"""The API's URL and the login, from the environment or from a file that only its owner can read.

The file holds a profile per login, each with an API key or with the tokens of a session. It is created with mode 0600
and refused with any wider one. A secret is sent only to the URL that it was stored for: changing SPLITPLANE_URL alone
must not send it to somebody else.
"""

import fcntl
import ipaddress
import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from control_plane.cli.errors import CliError, usage

URL_DEFAULT = "http://127.0.0.1:8080"
ENV_URL = "SPLITPLANE_URL"
ENV_KEY = "SPLITPLANE_API_KEY"
ENV_ALLOW_HTTP = "SPLITPLANE_ALLOW_HTTP"
ENV_PROFILE = "SPLITPLANE_PROFILE"
PROFILE_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Session:
    """A sign-in, with its tokens. None of them is in the repr."""

    id: str
    refresh: str = field(repr=False)
    access: str = field(repr=False)
    ends_at: float
    """When the access token ends (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose login it is, as the API says."""

    organization_id: str
    organization: str
    """The organization's name."""
    subject: str
    """The id of the user or the service account."""


UNKNOWN = Holder("", "", "")


@dataclass(frozen=True, slots=True)
class Login:
    """A URL, with an API key or a session. The key is not in the repr, so that it is in no traceback or log."""

    url: str
    api_key: str = field(repr=False)
    source: str
    """Where the key comes from, for people."""
    stored: bool = False
    """Whether the key is in the login file."""
    profile: str = PROFILE_DEFAULT
    """Under which name it is stored."""
    session: Session | None = None
    """The session of a person; None for an API key."""
    holder: Holder = UNKNOWN
    """`UNKNOWN` for a login from the environment."""

    @property
    def kind(self) -> str:
        return "API key" if self.session is None else "session"

    def renews(self, other: Self) -> bool:
        """Whether it is the other login once more, perhaps with a new key or a new session."""
        return (self.url, self.kind, self.holder) == (other.url, other.kind, other.holder)


def config_path(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "splitplane" / "config.toml"


def checked_url(url: str, environ: Mapping[str, str]) -> str:
    """The URL without a trailing slash. Plain http is refused for other machines, because it would reveal the key."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise usage(f"Not a URL: {url!r}. Use one like https://splitplane.example.com.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise usage("The URL may have a scheme, host, port and path; remove the user, query or fragment.")
    if parts.scheme == "http" and not _is_loopback(parts.hostname) and environ.get(ENV_ALLOW_HTTP) != "1":
        raise usage(
            f"http://{parts.hostname} would send your API key unencrypted; use https://,"
            f" or set {ENV_ALLOW_HTTP}=1 if you trust the network."
        )
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_private(path: Path, status: os.stat_result, content: str) -> None:
    """Refuse a file with a secret that belongs to somebody else, or that others can read or change."""
    if status.st_uid not in (os.geteuid(), 0):
        raise CliError(
            f"{path} contains {content}, and belongs to another user of this machine; it is not used.",
            code="file_of_another_user",
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise CliError(
            f"{path} contains {content}, and others can read it (mode {mode:04o}); run: chmod 600 {path}",
            code="file_exposed",
        )


def stored(environ: Mapping[str, str], profile: str | None = None) -> Login | None:
    """The login of a profile, or of the one in use; None when there is none."""
    file = _read(environ)
    name = file.in_use if profile is None else profile
    return file.profiles.get(name)


def current(environ: Mapping[str, str], profile: str | None = None) -> Login:
    """The login that commands use: the named profile's, the environment's, or else the profile in use."""
    profile = profile or environ.get(ENV_PROFILE) or None
    if profile is not None:
        return _of_profile(environ, profile)
    url, api_key = environ.get(ENV_URL), environ.get(ENV_KEY)
    if api_key and url:
        return Login(checked_url(url, environ), api_key, f"from {ENV_URL} and {ENV_KEY}")
    saved = stored(environ)
    if api_key:
        return Login(saved.url if saved else URL_DEFAULT, api_key, f"from {ENV_KEY}")
    if saved is None:
        raise CliError(
            f"Not logged in; run: splitplane login --url URL (or set {ENV_URL} and {ENV_KEY}).",
            code="not_logged_in",
        )
    if url and checked_url(url, environ) != saved.url:
        raise CliError(
            f"The stored login belongs to {saved.url}, but {ENV_URL} is {url}; set {ENV_KEY} as well,"
            f" or run: splitplane login --url {url}",
            code="key_of_another_url",
        )
    return saved


def _of_profile(environ: Mapping[str, str], profile: str) -> Login:
    file = _read(environ)
    found = file.profiles.get(profile)
    if found is None:
        raise CliError(
            f"There is no profile {profile!r};{_choices(file)} run: splitplane login --profile {profile}",
            code="profile_unknown",
        )
    return found


def _choices(file: "File") -> str:
    return f" there are {', '.join(sorted(file.profiles))}, or" if file.profiles else ""


@dataclass(frozen=True, slots=True)
class File:
    """What the login file holds."""

    in_use: str = PROFILE_DEFAULT
    """The profile that commands use when none is named."""
    profiles: Mapping[str, Login] = field(default_factory=dict[str, Login])


def profiles(environ: Mapping[str, str]) -> File:
    return _read(environ)


def _read(environ: Mapping[str, str]) -> File:
    path = config_path(environ)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
    except FileNotFoundError:
        return File()
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}.", code="config_unreadable") from error
    check_private(path, status, "your logins")
    try:
        values = tomllib.loads(content.decode())
        found = {
            str(name): _login(str(name), table, environ, path) for name, table in values["profiles"].items()
        }
        return File(str(values["profile"]), found)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError):
        # Without the cause, because a parser's message may quote the line with the key.
        raise CliError(f"{path} is damaged; run: splitplane login", code="config_damaged") from None


def _login(name: str, table: Mapping[str, object], environ: Mapping[str, str], path: Path) -> Login:
    session = None
    if "refresh_token" in table:
        session = Session(
            id=str(table["session"]),
            refresh=str(table["refresh_token"]),
            access=str(table["access_token"]),
            ends_at=float(str(table["access_ends_at"])),
        )
    url = checked_url(str(table["url"]), environ)
    key = "" if session is not None else str(table["api_key"])
    where = f"stored in {path}" if name == PROFILE_DEFAULT else f"stored as {name} in {path}"
    holder = Holder(str(table["organization_id"]), str(table["organization"]), str(table["subject"]))
    return Login(url, key, where, stored=True, profile=name, session=session, holder=holder)


def store(environ: Mapping[str, str], login: Login, *, replace: bool = True) -> Path:
    """Write a profile into the login file, completely or not at all, and use it from now on.

    Without `replace`, a profile of this name with another login is an error. Raises CliError.
    """
    with locked(environ):
        try:
            file = _read(environ)
        except CliError:
            file = File()  # A damaged or exposed file is replaced by the new login.
        held = file.profiles.get(login.profile)
        if held is not None and not (replace or login.renews(held)):
            raise CliError(
                f"The profile {held.profile} has another login already ({held.kind}, {held.holder.organization},"
                f" {held.url}), and nothing was stored. Choose another name: splitplane login --profile NAME",
                code="profile_taken",
            )
        return _write(environ, File(login.profile, {**file.profiles, login.profile: login}))


def update(environ: Mapping[str, str], login: Login) -> None:
    """Write a profile whose tokens or key were exchanged. Call it with the file locked."""
    file = _read(environ)
    _write(environ, File(file.in_use, {**file.profiles, login.profile: login}))


def use_profile(environ: Mapping[str, str], profile: str) -> None:
    """Use a profile from now on."""
    with locked(environ):
        _of_profile(environ, profile)
        _write(environ, File(profile, _read(environ).profiles))


def forget(environ: Mapping[str, str], profile: str | None = None) -> Path | None:
    """Remove a profile, or the one in use; None when there was none."""
    path = config_path(environ)
    with locked(environ):
        file = _read(environ)
        name = file.in_use if profile is None else profile
        if name not in file.profiles:
            return None
        left = {other: login for other, login in file.profiles.items() if other != name}
        if not left:
            path.unlink()
            return path
        in_use = file.in_use if file.in_use in left else min(left)
        return _write(environ, File(in_use, left))


@contextmanager
def locked(environ: Mapping[str, str]) -> Iterator[None]:
    """Keep other commands from writing the login file meanwhile: a refresh token must be used once only."""
    path = config_path(environ)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CliError(f"Cannot write {path}: {error.strerror}.", code="config_unwritable") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(environ: Mapping[str, str], file: File) -> Path:
    path = config_path(environ)
    try:
        _replace(path, _text(file))
    except OSError as error:
        raise CliError(f"Cannot write {path}: {error.strerror}.", code="config_unwritable") from error
    return path


def _text(file: File) -> str:
    # An ASCII JSON string, which `json.dumps` makes, is also a TOML basic string.
    lines = [
        "# Written by `splitplane login`. It contains secrets: do not share it.",
        f"profile = {json.dumps(file.in_use)}",
    ]
    for name, login in sorted(file.profiles.items()):
        lines += [
            "",
            f"[profiles.{json.dumps(name)}]",
            f"url = {json.dumps(login.url)}",
            f"organization_id = {json.dumps(login.holder.organization_id)}",
            f"organization = {json.dumps(login.holder.organization)}",
            f"subject = {json.dumps(login.holder.subject)}",
        ]
        if login.session is None:
            lines.append(f"api_key = {json.dumps(login.api_key)}")
            continue
        session = login.session
        lines += [
            f"session = {json.dumps(session.id)}",
            f"refresh_token = {json.dumps(session.refresh)}",
            f"access_token = {json.dumps(session.access)}",
            f"access_ends_at = {int(session.ends_at)}",
        ]
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
