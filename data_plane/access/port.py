"""How the reconciler reaches a rented machine, and the laws both sides keep.

  1. The host key is ours: we put it into the machine before it first boots, so there is no first
     contact on trust. A machine that shows another key is not the one we ordered.
  2. Every step may be repeated: the second time changes nothing and answers the same.
  3. What a machine answers is bounded, parsed and believed only as far as it can be checked; no
     answer moves money or placement (a node is hostile).
  4. Nothing but AccessError leaves, and no error text holds a secret.
  5. Access neither retries nor sleeps between attempts: the next activation is the retry. Every
     step has its own time limit, so a hung machine costs a bounded time.

    AccessError
    |-- Unreachable        no connection, or it broke: nothing is known about the step. Try later
    |-- HostKeyChanged     somebody else answers at this address
    |-- LoginRefused       the right machine, and it does not let us in (yet)
    `-- StepFailed         the machine did the step and it failed, hung, or answered nonsense

A machine that is still booting may show any of the first three for a while: its image's own host key
or no user, until cloud-init has run. Whoever calls decides how long that is normal.
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
    """No connection, or it broke midway: the step may or may not have happened. Try again later."""


class HostKeyChanged(AccessError):  # noqa: N818
    """The machine at this address does not hold the host key we gave it. Nothing was sent to it."""


class LoginRefused(AccessError):  # noqa: N818
    """The right machine does not accept our key or user."""


class StepFailed(AccessError):  # noqa: N818
    """A step on the machine failed.

    `exit_status` is None when the machine did not answer in the step's time, died by a signal, or
    answered something we do not accept. `detail` is printable, bounded, and written by the machine:
    show it, never parse it.
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
    """IPv4 or IPv6 text."""
    port: int
    host_key: str
    """One OpenSSH public key line, known before first contact: `ssh-ed25519 AAAA...`."""


@dataclass(frozen=True, slots=True)
class HostKey:
    """A machine's SSH identity, made by us and given to it in its user data."""

    private_openssh: str
    """A secret: it goes into user data and nowhere else."""
    public: str
    """One OpenSSH public key line without a newline; `Target.host_key`."""

    def __repr__(self) -> str:
        return f"HostKey(public={self.public!r})"  # A traceback or log line must not show the private half.


class Session(Protocol):
    """A logged-in connection to one machine. Steps may run side by side on it."""

    async def run(self, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"") -> Answer:
        """Run a step to its end, whatever its exit status.

        Raises Unreachable if the connection breaks, StepFailed if the step runs out of time, dies by a
        signal or prints more than OUTPUT_BYTES_MAX bytes.
        """
        ...

    def converse(self, step: Step, arguments: Sequence[str] = ()) -> AbstractAsyncContextManager[Line]:
        """Start a step and speak with it in frames; leaving ends it. Entering raises Unreachable."""
        ...


class Access(Protocol):
    """The way in."""

    def connect(self, target: Target) -> AbstractAsyncContextManager[Session]:
        """Log in. Entering raises Unreachable (within about 10 s), HostKeyChanged or LoginRefused."""
        ...


async def must(session: Session, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"") -> Answer:
    """Run a step; any exit status but 0 is StepFailed."""
    answer = await session.run(step, arguments, stdin=stdin)
    if answer.exit_status != 0:
        raise StepFailed(step.name, answer.exit_status, answer.detail)
    return answer
