"""What an overlay's interface lists on a machine: read from `wg show`, compared with what it was set up as."""

from dataclasses import dataclass

from data_plane.access.port import StepFailed
from data_plane.access.step import Answer, Step
from data_plane.mesh.wireguard import wireguard_key

SILENT_AFTER_SECONDS = 180
"""WireGuard makes a new session every 120 s while packets pass, and uses none that is older than this
(REJECT_AFTER_TIME)."""


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A peer of the interface."""

    public_key: str
    allowed: frozenset[str]
    """Ranges, such as `10.64.16.3/32`."""
    endpoint: str | None
    """Where its packets go: what it was set up with, or where the last authentic packet came from."""
    keepalive: bool
    handshake_seconds: int | None
    """How long ago the last handshake was; None when there was none."""

    @property
    def silent(self) -> bool:
        """Whether the other end has not answered lately. That is evidence only where packets pass: with a keepalive
        at either end, or with traffic.
        """
        return self.handshake_seconds is None or self.handshake_seconds > SILENT_AFTER_SECONDS


@dataclass(frozen=True, slots=True)
class Interface:
    """The interface of an overlay as it is on a machine."""

    public_key: str
    """Of the private key that it uses now."""
    port: int
    tunnels: tuple[Tunnel, ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(tunnel.public_key for tunnel in self.tunnels)


def interface(step: Step, answer: Answer) -> Interface:
    """What a step printed: `public-key port now`, then a line for each peer. Raises StepFailed for anything else."""
    try:
        first, *rest = answer.output.decode("ascii").splitlines()
        key, port, now = first.split(" ")
        tunnels = tuple(_tunnel(line, int(now)) for line in rest)
        return Interface(wireguard_key(key), int(port), tunnels)
    except ValueError:  # UnicodeDecodeError is one too.
        raise StepFailed(
            step.name, None, "the machine did not answer with the state of an interface"
        ) from None


def _tunnel(line: str, now: int) -> Tunnel:
    """A line with some columns of `wg show dump`, which wg(8) explains. Raises ValueError."""
    key, endpoint, allowed, handshake, keepalive = line.split("\t")
    at = int(handshake)
    return Tunnel(
        wireguard_key(key),
        frozenset() if allowed == "(none)" else frozenset(allowed.split(",")),
        None if endpoint == "(none)" else endpoint,
        keepalive != "off",
        None if at == 0 else max(0, now - at),
    )
