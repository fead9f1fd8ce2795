"""Passwords of nodes: who registers a name first keeps it, until its Secret is deleted.

The Secret is `NODE.node-password.k3s` in kube-system and holds a salted hash, in K3s' form. It has a type of its own
(pkg/nodepassword of K3s, 2026-11-23): a server that starts creates those of another type again, and those for which
there is no Node are deleted after ten minutes.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from tests.support.kubernetes.k3s.api import ApiError, Client

PATH = "/api/v1/namespaces/kube-system/secrets"
TYPE = "k3s.cattle.io/node-password"
ORPHANED_AFTER = timedelta(minutes=10)
ROUNDS, BLOCK, PARALLEL = 15, 8, 1
_SUFFIX = ".node-password.k3s"


class PasswordRefusedError(Exception):
    """Another machine registered this name before. The text is K3s' own."""


class NotStoredError(Exception):
    """A new password cannot be stored, such as that of a node whose name no Secret can have."""


def ensure(admin: Client, node: str, password: str) -> None:
    """Remember a new node's password, or compare a known one's.

    Raises PasswordRefusedError, NotStoredError or ApiError.
    """
    name = _secret(node)
    try:
        known = admin.get(f"{PATH}/{quote(name)}")
    except ApiError as error:
        if error.status != 404:
            raise
        data = {"hash": base64.b64encode(_hashed(password, secrets.token_bytes(8)).encode()).decode()}
        thing = {"metadata": {"name": name}, "type": TYPE, "immutable": True, "data": data}
        try:
            admin.send("POST", PATH, thing)
        except ApiError as refusal:
            raise NotStoredError(f"password of node {node} is stored later: {refusal}") from refusal
        return
    assert isinstance(known, dict)
    stored = base64.b64decode(known["data"]["hash"]).decode()
    salt = bytes.fromhex(stored.split(":")[1])
    if not hmac.compare_digest(stored, _hashed(password, salt)):
        raise PasswordRefusedError(f"unable to verify password for node {node}: hash does not match")


def migrate(admin: Client) -> None:
    """Create the passwords of another type again, as a server does when it starts. Raises ApiError."""
    for thing in _stored(admin):
        metadata = thing["metadata"]
        if thing.get("type") == TYPE or not metadata["name"].endswith(_SUFFIX):
            continue
        _delete(admin, metadata)
        fresh = {key: value for key, value in metadata.items() if key not in ("uid", "resourceVersion")}
        admin.ensure(PATH, {**thing, "metadata": fresh, "type": TYPE})


def delete_orphans(admin: Client, nodes: Collection[str], now: datetime) -> None:
    """Delete the passwords for which there has been no Node for long enough to join. Raises ApiError."""
    known = {_secret(node) for node in nodes}
    for thing in _stored(admin):
        metadata = thing["metadata"]
        age = now - datetime.fromisoformat(metadata["creationTimestamp"])
        if thing.get("type") == TYPE and age > ORPHANED_AFTER and metadata["name"] not in known:
            _delete(admin, metadata)


def _stored(admin: Client) -> list[Any]:
    listed = admin.get(PATH)
    assert isinstance(listed, dict)
    return list(listed["items"])


def _delete(admin: Client, metadata: dict[str, Any]) -> None:
    try:
        admin.send("DELETE", f"{PATH}/{quote(metadata['name'])}", {"preconditions": {"uid": metadata["uid"]}})
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def forget(admin: Client, node: str) -> None:
    """Raises ApiError."""
    try:
        admin.send("DELETE", f"{PATH}/{quote(_secret(node))}")
    except ApiError as error:
        if error.status != 404:
            raise


def _secret(node: str) -> str:
    return f"{node.lower()}{_SUFFIX}"


def _hashed(password: str, salt: bytes) -> str:
    key = hashlib.scrypt(
        password.encode(), salt=salt, n=1 << ROUNDS, r=BLOCK, p=PARALLEL, maxmem=1 << 26, dklen=64
    )
    return f"$1:{salt.hex()}:{ROUNDS}:{BLOCK}:{PARALLEL}:{base64.b64encode(key).decode().rstrip('=')}"
