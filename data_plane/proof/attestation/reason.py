"""Why a report was not accepted: stable codes, and how the readers say them."""

from enum import StrEnum


class Reason(StrEnum):
    MALFORMED = "malformed"
    """Not a report or not a chain of certificates, or one that we do not know how to read."""
    NONCE = "nonce"
    """Signed for another question: a replay."""
    ROOT = "root"
    """The chain ends in a root that is not pinned."""
    EXPIRED = "expired"
    """A certificate is not yet, or no longer, valid."""
    CHAIN = "chain"
    """A certificate was not issued by the next, or may not do what it is used for."""
    DEVICE = "device"
    """A genuine chain, and not that of a GPU."""
    SIGNATURE = "signature"
    """The report was not signed by the key that the chain vouches for."""
    FIRMWARE = "firmware"
    """The report names other firmware than the certificate of the key that signed it."""
    MODEL = "model"
    """A genuine GPU, and not of the model that was sold."""
    MEASUREMENT = "measurement"
    """The GPU measured something else than NVIDIA published for this version."""


class NotTrusted(Exception):  # noqa: N818 - reads as a sentence: the report is not trusted
    """Well-formed, and not to be believed."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason
