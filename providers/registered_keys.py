"""SSH keys that a provider wants registered before a machine is launched with them."""

import hashlib


def key_material(public_key: str) -> str:
    """A public key without its comment, which providers and people may change."""
    return " ".join(public_key.split()[:2])


def key_name(prefix: str, material: str) -> str:
    """A name for this key alone: the prefix and 16 hexadecimal digits.

    >>> key_name("splitplane", "ssh-ed25519 AAAA")
    'splitplane-9de8a23119db6492'
    """
    return f"{prefix}-{hashlib.sha256(material.encode()).hexdigest()[:16]}"
