"""How the reconciler reaches a rented machine, and the laws that every implementation keeps.

  1. We make the host key and put it into the machine before its first boot, so the first contact needs no
     trust. A machine that shows another key is not the one we ordered.
  2. Every step can be repeated. The second run changes nothing and has the same answer.
  3. A machine's answer is bounded, parsed, and believed only as far as it can be checked. No answer decides
     about money or placement (a node is hostile).
  4. Only AccessError is raised, and no error text contains a secret.
  5. Access neither retries nor sleeps between attempts: the next activation is the retry. Every step has
     its own time limit, so a machine that hangs costs a bounded time.

    AccessError
    |-- Unreachable        there is no connection, or it broke: the step may have happened or not. Try later
    |-- HostKeyChanged     the machine at this endpoint is not the one we ordered
    |-- LoginRefused       it is the right machine, and it does not accept our certificate or user (yet)
    |-- NotCertified       our own authority signed no certificate, so no machine was asked
    `-- StepFailed         the step failed on the machine, ran out of time, or had a malformed answer

A machine that is still booting can cause any of the first three: until cloud-init has run, it shows its
image's own host key or has no user for us. The caller decides how long that is normal.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from data_plane.access.line import Line
from data_plane.access.step import Answer, Step


class AccessError(Exception):
    """A machine could not be reached or made to do what we need."""


class Unreachable(AccessError):  # noqa: N818 - the tree above reads as sentences
    """There is no connection, or it broke midway: the step may have happened or not. Try again later."""


class HostKeyChanged(AccessError):  # noqa: N818
    """The machine at this endpoint shows another host key than the one we made for it. Nothing was sent to it."""


class LoginRefused(AccessError):  # noqa: N818
    """The machine has the right host key, but does not accept our certificate or user."""


class NotCertified(AccessError):  # noqa: N818 - reads as a sentence
    """Our own authority signed no certificate for us. Nothing was sent to a machine, and none is to blame."""


class StepFailed(AccessError):  # noqa: N818
    """A step on the machine failed.

    `exit_status` is None when the step ran out of time, died by a signal, or had an answer that we do not accept.
    `detail` is printable and bounded, but written by the machine: show it, never parse it.
    """

    def __init__(self, step: str, exit_status: int | None, detail: str) -> None:
        super().__init__(
            f"{step}: {detail}" if exit_status is None else f"{step} (exit {exit_status}): {detail}"
        )
        self.step = step
        self.exit_status = exit_status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to reach."""

    address: str
    """An IPv4 or IPv6 address."""
    port: int
    host_key: str
    """One OpenSSH public key line, known before the first contact: `ssh-ed25519 AAAA...`."""
    principal: str
    """What our certificate has to name there, which no other machine accepts: the machine's launch key."""


@dataclass(frozen=True, slots=True)
class HostKey:
    """A machine's SSH host key, which we make and give to the machine in its user data."""

    private_openssh: str
    """A secret that goes into the user data and nowhere else."""
    public: str
    """One OpenSSH public key line without a newline; `Target.host_key`."""

    def __repr__(self) -> str:
        return f"HostKey(public={self.public!r})"  # Tracebacks and logs must not show the private half.


class Session(Protocol):
    """A logged-in connection to one machine. Steps may run side by side on it."""

    async def run(
        self, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"", private: Sequence[str] = ()
    ) -> Answer:
        """Run a step to its end and return its answer, whatever its exit status.

        `private`: what its answer's `detail` must not repeat, such as a credential that the machine's log may quote.
        Raises Unreachable if the connection breaks; StepFailed if the step runs out of time, dies by a signal or
        prints more than its `output_bytes_max`.
        """
        ...

    def converse(self, step: Step, arguments: Sequence[str] = ()) -> AbstractAsyncContextManager[Line]:
        """Start a step and exchange frames with it. Leaving ends the step. Entering raises Unreachable."""
        ...


class Access(Protocol):
    """Opens sessions on machines."""

    def connect(self, target: Target) -> AbstractAsyncContextManager[Session]:
        """Log in. Entering raises Unreachable (within about 10 s), HostKeyChanged, LoginRefused or NotCertified."""
        ...


async def must(
    session: Session,
    step: Step,
    arguments: Sequence[str] = (),
    *,
    stdin: bytes = b"",
    private: Sequence[str] = (),
) -> Answer:
    """Run a step and return its answer. Raises StepFailed for an exit status other than 0, and Unreachable."""
    answer = await session.run(step, arguments, stdin=stdin, private=private)
    if answer.exit_status != 0:
        raise StepFailed(step.name, answer.exit_status, answer.detail)
    return answer
