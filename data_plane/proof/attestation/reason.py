"""Why a report was not accepted: stable codes, and the exception that has them."""

from enum import StrEnum


class Reason(StrEnum):
    MALFORMED = "malformed"
    """The report or the certificate chain is malformed, or of an unknown version."""
    NONCE = "nonce"
    """The report was signed for another nonce, so it is a replay."""
    ROOT = "root"
    """The chain ends in a root that is not pinned."""
    EXPIRED = "expired"
    """A certificate is not valid yet, or not any more."""
    CHAIN = "chain"
    """A certificate was not issued by the next one, or may not be used at its place."""
    DEVICE = "device"
    """The chain is genuine, but does not belong to a GPU."""
    SIGNATURE = "signature"
    """The report was not signed with the key that the chain certifies."""
    FIRMWARE = "firmware"
    """The report names other firmware than the certificate of the key that signed it."""
    MODEL = "model"
    """The GPU is genuine, but not of the model that was sold."""
    MEASUREMENT = "measurement"
    """A measurement differs from the values that NVIDIA published for this version."""


class NotTrusted(Exception):  # noqa: N818 - reads as a sentence: the report is not trusted
    """The report is well-formed, but must not be trusted."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason
