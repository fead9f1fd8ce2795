"""Bootstrap tokens: Secrets of kube-system with an end, and `k3s token` that makes, lists and deletes them."""

import base64
import json
import re
import secrets
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.support.kubernetes.k3s import tokens
from tests.support.kubernetes.k3s.api import ApiError, Client

PATH = "/api/v1/namespaces/kube-system/secrets"
KIND = "bootstrap.kubernetes.io/token"
GROUP = "system:bootstrappers:k3s:default-node-token"
ALPHABET = string.ascii_lowercase + string.digits
LASTS = "24h0m0s"
UNITS = {"h": 3600, "m": 60, "s": 1}


class DurationError(ValueError):
    """Not a duration as Go writes it: `15m`, `1h30m`."""


@dataclass(frozen=True, slots=True)
class BootstrapToken:
    text: str
    description: str
    expires: datetime | None
    groups: tuple[str, ...]

    def is_valid(self, now: datetime) -> bool:
        return self.expires is None or now < self.expires


def seconds(text: str) -> int:
    """Of a duration in Go's form. Raises DurationError."""
    parts = re.findall(r"(\d+)([hms])", text)
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise DurationError(f'invalid value "{text}" for flag -ttl: parse error')
    return sum(int(number) * UNITS[unit] for number, unit in parts)


def create(admin: Client, authority: bytes, now: datetime, *, ttl: str, description: str) -> str:
    """The new token in its full form; one of a ttl of 0 never ends."""
    token_id = "".join(secrets.choice(ALPHABET) for _ in range(6))
    secret = "".join(secrets.choice(ALPHABET) for _ in range(16))
    fields = {
        "token-id": token_id,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": GROUP,
    }
    if description:
        fields["description"] = description
    if seconds(ttl):
        end = (now + timedelta(seconds=seconds(ttl))).astimezone(UTC)
        fields["expiration"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    thing = {"metadata": {"name": f"bootstrap-token-{token_id}"}, "type": KIND, "stringData": fields}
    admin.send("POST", PATH, thing)
    return tokens.full(authority, f"{token_id}.{secret}")


def find(admin: Client, text: str, now: datetime) -> BootstrapToken | None:
    """The token with this id and secret, unless it has ended. Raises ApiError."""
    token_id, _, _ = text.partition(".")
    try:
        secret = admin.get(f"{PATH}/bootstrap-token-{token_id}")
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    assert isinstance(secret, dict)
    found = _read(secret)
    return found if secrets.compare_digest(found.text, text) and found.is_valid(now) else None


def every(admin: Client) -> Iterator[BootstrapToken]:
    listed = admin.get(f"{PATH}?fieldSelector=type={KIND.replace('/', '%2F')}")
    assert isinstance(listed, dict)
    yield from (_read(secret) for secret in listed["items"])


def delete(admin: Client, token: str) -> str:
    """The id of the deleted token, which may be given by its id, in short or in full."""
    token_id = token.rpartition("::")[2].partition(".")[0]
    admin.send("DELETE", f"{PATH}/bootstrap-token-{token_id}")
    return token_id


def as_json(found: Sequence[BootstrapToken]) -> str:
    """What `k3s token list -o json` prints: one object per line."""
    return "\n".join(json.dumps(_view(token)) for token in found)


def _view(token: BootstrapToken) -> dict[str, object]:
    view: dict[str, object] = {
        "token": token.text,
        "description": token.description,
        "groups": list(token.groups),
    }
    if token.expires:
        view["expires"] = token.expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    return view | {"usages": ["authentication", "signing"]}


def _read(secret: Mapping[str, object]) -> BootstrapToken:
    data = secret.get("data")
    assert isinstance(data, dict)
    fields = {name: base64.b64decode(value).decode() for name, value in data.items()}
    expires = datetime.fromisoformat(fields["expiration"]) if "expiration" in fields else None
    groups = tuple(fields.get("auth-extra-groups", "").split(","))
    text = f"{fields['token-id']}.{fields['token-secret']}"
    return BootstrapToken(text, fields.get("description", ""), expires, groups)
