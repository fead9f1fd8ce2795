"""A line to a machine whose agent is hostile: it sees every order and sends what it likes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from data_plane.proof.protocol.messages import Order
from data_plane.simulation.line import Sent, VirtualLine


class Attacker(Protocol):
    """A hostile agent. It sees each order and the honest answers of the emulation."""

    def answers(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:
        """What it sends after an order that arrived at `at`. Frames leave in the order of their times."""
        ...


class Faithful:
    """Sends what the emulation answered."""

    def answers(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:
        return honest


FAITHFUL = Faithful()


@dataclass
class AttackedLine(VirtualLine):
    """A virtual line with an attacker between the prover and the network."""

    attacker: Attacker = FAITHFUL

    def leaving(self, order: Order, at: float, honest: Sequence[Sent]) -> Iterable[Sent]:
        return self.attacker.answers(order, at, honest)
