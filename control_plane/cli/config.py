"""The API's URL and the API key, from the environment or from a file that only its owner can read.

The file is created with mode 0600 and refused with any wider one. A stored key is sent only to the URL that
it was stored for: changing SPLITPLANE_URL alone must not send it to somebody else.
"""

import ipaddress
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from control_plane.cli.errors import CliError, usage

URL_DEFAULT = "http://127.0.0.1:8080"
ENV_URL = "SPLITPLANE_URL"
ENV_KEY = "SPLITPLANE_API_KEY"
ENV_ALLOW_HTTP = "SPLITPLANE_ALLOW_HTTP"


@dataclass(frozen=True, slots=True)
class Login:
    """A URL and an API key. The key is not in the repr, so that it is in no traceback or log."""

    url: str
    api_key: str = field(repr=False)
    source: str
    """Where the key comes from, for people."""
    stored: bool = False
    """Whether the key is in the login file."""


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


def stored(environ: Mapping[str, str]) -> Login | None:
    """The login that `splitplane login` stored; None when there is none."""
    path = config_path(environ)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}.", code="config_unreadable") from error
    check_private(path, status, "an API key")
    try:
        values = tomllib.loads(content.decode())
        url, api_key = values["url"], values["api_key"]
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError):
        # Without the cause, because a parser's message may quote the line with the key.
        raise CliError(f"{path} is damaged; run: splitplane login", code="config_damaged") from None
    return Login(checked_url(str(url), environ), str(api_key), f"stored in {path}", stored=True)


def current(environ: Mapping[str, str]) -> Login:
    """The login that commands use: the environment's, or else the stored one."""
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
            f"The stored API key belongs to {saved.url}, but {ENV_URL} is {url}; set {ENV_KEY} as well,"
            f" or run: splitplane login --url {url}",
            code="key_of_another_url",
        )
    return saved


def store(environ: Mapping[str, str], login: Login) -> Path:
    """Write the login file completely or not at all, readable by its owner only from the first byte."""
    path = config_path(environ)
    # An ASCII JSON string, which `json.dumps` makes, is also a TOML basic string.
    text = (
        "# Written by `splitplane login`. It contains an API key: do not share it.\n"
        f"url = {json.dumps(login.url)}\n"
        f"api_key = {json.dumps(login.api_key)}\n"
    )
    try:
        _replace(path, text)
    except OSError as error:
        raise CliError(f"Cannot write {path}: {error.strerror}.", code="config_unwritable") from error
    return path


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def forget(environ: Mapping[str, str]) -> Path | None:
    """Remove the stored login; None when there was none."""
    path = config_path(environ)
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    return path
