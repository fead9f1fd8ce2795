"""Passwords of nodes: who registers a name first keeps it, until its Secret is deleted.

The Secret is `NODE.node-password.k3s` in kube-system and holds a salted hash, in K3s' form.
"""

import base64
import hashlib
import hmac
import secrets
from urllib.parse import quote

from tests.support.kubernetes.k3s.api import ApiError, Client

PATH = "/api/v1/namespaces/kube-system/secrets"
ROUNDS, BLOCK, PARALLEL = 15, 8, 1


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
        thing = {"metadata": {"name": name}, "type": "Opaque", "immutable": True, "data": data}
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


def forget(admin: Client, node: str) -> None:
    """Raises ApiError."""
    try:
        admin.send("DELETE", f"{PATH}/{quote(_secret(node))}")
    except ApiError as error:
        if error.status != 404:
            raise


def _secret(node: str) -> str:
    return f"{node.lower()}.node-password.k3s"


def _hashed(password: str, salt: bytes) -> str:
    key = hashlib.scrypt(
        password.encode(), salt=salt, n=1 << ROUNDS, r=BLOCK, p=PARALLEL, maxmem=1 << 26, dklen=64
    )
    return f"$1:{salt.hex()}:{ROUNDS}:{BLOCK}:{PARALLEL}:{base64.b64encode(key).decode().rstrip('=')}"
