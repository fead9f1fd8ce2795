"""What goes wrong on simulated machines: calls that fail, answers that are lost, machines that are gone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from data_plane.access.port import Target, Unreachable

Value = TypeVar("Value")


@dataclass
class Faults:
    fail: dict[str, list[Exception]] = field(default_factory=dict[str, list[Exception]])
    """What the next calls of a name raise, such as `{"start": [StepFailed(...)]}`. They do nothing else."""
    lose: dict[str, int] = field(default_factory=dict[str, int])
    """The answers of so many calls of a name are lost: they take effect, and raise Unreachable."""
    gone: set[str] = field(default_factory=set[str])
    """Addresses of machines that do not answer."""
    calls: list[str] = field(default_factory=list[str])
    """What was asked for, such as `start 10.0.0.7`."""

    def call(self, name: str, machine: Target, effect: Callable[[], Value]) -> Value:
        """What `effect` returns, unless something goes wrong before or after it."""
        self.calls.append(f"{name} {machine.address}")
        where = f"{machine.address} port {machine.port}"
        if machine.address in self.gone:
            raise Unreachable(f"{where}: no answer in time")
        if self.fail.get(name):
            raise self.fail[name].pop(0)
        value = effect()
        if self.lose.get(name, 0) > 0:
            self.lose[name] -= 1
            raise Unreachable(f"{where}: the connection broke")
        return value
