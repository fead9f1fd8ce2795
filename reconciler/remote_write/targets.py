"""Reads the file that names the stores for remote write: TOML with a table for each.

[[target]]
name = "mimir"
url = "https://mimir.example.com/api/v1/push"
token_path = "/run/splitplane/mimir-token"
"""

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from environment.reading import SettingsError
from reconciler.worlds.telemetry import Target

_VARIABLE = "SPLITPLANE_REMOTE_WRITE"
_KEYS = {"name", "url", "token_path"}


def read(path: Path | None) -> tuple[Target, ...]:
    """The targets of a file; none without one. Raises SettingsError."""
    if path is None:
        return ()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{_VARIABLE}: {path} cannot be read: {error}") from error
    tables = document.get("target", [])
    if set(document) - {"target"} or not isinstance(tables, list) or not tables:
        raise SettingsError(f"{_VARIABLE}: {path} must have one or more tables [[target]], and nothing else")
    targets = tuple(_target(path, table) for table in tables)
    if len({target.name for target in targets}) != len(targets):
        raise SettingsError(f"{_VARIABLE}: two targets of {path} have the same name")
    return targets


def _target(path: Path, table: object) -> Target:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise SettingsError(f"{_VARIABLE}: a target of {path} is no table of texts")
    if set(table) - _KEYS or not table.get("name") or not table.get("url"):
        raise SettingsError(f"{_VARIABLE}: a target of {path} needs name and url, and may have token_path")
    parts = urlsplit(table["url"])
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise SettingsError(
            f"{_VARIABLE}: the url of {table['name']} must begin with https:// or http://, and contain no password"
        )
    token = table.get("token_path")
    return Target(table["name"], table["url"], None if token is None else Path(token))
