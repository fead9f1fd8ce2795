"""A step on a remote machine: what to run, as which user, for how long, and the answer."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from data_plane.documents.strict import printable

OUTPUT_BYTES_MAX = 256 * 1024
"""For standard output and standard error each. The longest answer of most is an inventory:
`protocol.DOCUMENT_BYTES_MAX`."""
DETAIL_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True)
class Step:
    """A shell script that can be repeated any number of times."""

    name: str
    """For error messages, such as `install keys`."""
    script: str
    """POSIX sh. The machine's process list shows it, so it contains no data: data comes by stdin or arguments."""
    seconds: int
    """The time limit that the machine itself enforces, so that hung steps do not pile up there."""
    user: Literal["root", "customer", "login"]
    output_bytes_max: int = OUTPUT_BYTES_MAX
    """For standard output and standard error each."""

    def command(self, arguments: Sequence[str] = ()) -> str:
        """The command line for the login shell. Arguments are visible to every user of the machine."""
        sudo: dict[str, list[str]] = {
            "root": ["sudo", "-n", "--"],
            "customer": ["sudo", "-n", "-H", "-u", CUSTOMER, "--"],
            "login": [],
        }
        bounded = ["timeout", "-k", "5", str(self.seconds), "sh", "-c", self.script, "splitplane", *arguments]
        return shlex.join(sudo[self.user] + bounded)


CUSTOMER = "ubuntu"
"""The user that customers log in as. cloud-init creates it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a step ended and what it printed, on a machine that may be hostile."""

    exit_status: int
    output: bytes
    """At most `Step.output_bytes_max` bytes."""
    detail: str
    """The end of its standard error: printable, at most DETAIL_CHARACTERS_MAX characters, without what is private."""


def detail_of(errors: bytes, private: Sequence[str] = ()) -> str:
    """`Answer.detail` for what a step printed to standard error. `private`: what it may quote, and we must not.

    That is taken out before the text is cut, because nobody would recognise the half of a secret.
    """
    words = printable(errors.decode("ascii", "replace"), len(errors)).split()
    text = " ".join(words)
    for secret in sorted(private, key=len, reverse=True):
        text = text.replace(secret, "...")
    return text[-DETAIL_CHARACTERS_MAX:]
