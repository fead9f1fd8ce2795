"""Waits for what the API stores a request for and the reconciler does: SSH certificates, kubeconfigs, consoles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from control_plane.cli.answers import Answer
from control_plane.cli.errors import CliError
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import spaced
from control_plane.wire.consoles import ConsoleView
from control_plane.wire.kubeconfigs import KubeconfigView
from control_plane.wire.ssh_certificates import SshCertificateView

Requested = TypeVar("Requested", ConsoleView, KubeconfigView, SshCertificateView)
T = TypeVar("T", KubeconfigView, SshCertificateView)


@dataclass(frozen=True, slots=True)
class Kind:
    """What is waited for."""

    noun: str
    done: str
    """Its state once it can be used."""
    within_seconds: float
    """How long it is waited for."""
    pauses: Sequence[float]
    """Seconds between looks; the last one is repeated."""
    blame: str
    """Which part does not answer when it takes longer, as a sentence without its full stop."""


def until_done(
    terminal: Terminal, kind: Kind, requested: Answer[Requested], look: Callable[[], Answer[Requested]]
) -> Answer[Requested]:
    """What was requested, once something became of it. Raises CliError when nothing does in time."""
    answer, since, looks = requested, terminal.clock.seconds(), 0
    while answer.value.state == "wanted":
        if terminal.clock.seconds() - since > kind.within_seconds:
            raise CliError(
                f"The {kind.noun} {answer.value.id} was requested {kind.within_seconds:g} seconds ago and is not"
                f" {kind.done} yet. Try again; if it stays so, {kind.blame}.",
                code=f"not_{kind.done}",
            )
        terminal.clock.sleep(kind.pauses[min(looks, len(kind.pauses) - 1)])
        looks += 1
        answer = look()
    return answer


def until_issued(
    terminal: Terminal, kind: Kind, requested: Answer[T], look: Callable[[], Answer[T]]
) -> Answer[T]:
    """What was requested, once it can be used. Raises CliError when it is refused, or not issued in time."""
    answer = until_done(terminal, kind, requested, look)
    if answer.value.state != kind.done:
        why = answer.value.refused_why or answer.value.revoked_why or "unknown"
        raise CliError(
            f"The {kind.noun} {answer.value.id} is {answer.value.state}: {spaced(why)}.",
            code=f"{kind.noun}_{answer.value.state}",
        )
    return answer
