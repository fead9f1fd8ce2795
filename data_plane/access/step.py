"""One bounded step on a remote machine: what to run, as whom, for how long, and what came back."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

OUTPUT_BYTES_MAX = 256 * 1024
"""An inventory is the longest answer: `protocol.DOCUMENT_BYTES_MAX`."""
DETAIL_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True)
class Step:
    """A shell script that may be run any number of times."""

    name: str
    """What a person reads when it fails, such as `install keys`."""
    script: str
    """POSIX sh. Visible in the machine's process list, so it holds no data: that comes by stdin or arguments."""
    seconds: int
    """After this the machine itself ends the script, so that hung steps do not pile up there."""
    user: Literal["root", "customer", "login"]

    def command(self, arguments: Sequence[str] = ()) -> str:
        """The command line for the login shell. Arguments are public; secrets travel by stdin only."""
        sudo: dict[str, list[str]] = {
            "root": ["sudo", "-n", "--"],
            "customer": ["sudo", "-n", "-H", "-u", CUSTOMER, "--"],
            "login": [],
        }
        bounded = ["timeout", "-k", "5", str(self.seconds), "sh", "-c", self.script, "splitplane", *arguments]
        return shlex.join(sudo[self.user] + bounded)


CUSTOMER = "ubuntu"
"""The user that customers log in as; cloud-init makes it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step printed, at most OUTPUT_BYTES_MAX bytes, by a machine that may be hostile."""

    exit_status: int
    output: bytes
    detail: str
    """The end of its error output: printable, at most DETAIL_CHARACTERS_MAX characters."""
