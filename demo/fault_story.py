"""The demo's chapter about a GPU that fails: the lease gets another machine, and the broken promise is paid back."""

import json
import time
from collections.abc import Callable
from typing import Any

from demo.city import City
from demo.processes import wait_for

SAMPLED_SECONDS_MAX = 60
FOUND_SECONDS_MAX = 90
TOLD_SECONDS_MAX = 60
TAKEN_SECONDS_MAX = 90
CREDITED_SECONDS_MAX = 120
Typed = Callable[..., str]
"""Types a command of ours, and shows it with its output unless it is told not to."""


class FaultStory:
    def __init__(self, city: City, customer: Typed, operator: Typed) -> None:
        self._city = city
        self._customer = customer
        self._operator = operator

    def fail(self, name: str) -> bool:
        """Have the GPU of a lease fail. Returns whether the lease is ready on another machine."""
        lease = self._lease(name)
        lease_id, machine = lease["id"], lease["machine"]
        self._city.say("  (the terms of this demo promise more than the shipped ones, such as another")
        self._city.say("  machine within 2 s, so that a failure of seconds is one to pay for)")
        self._customer("sla", "show", name)
        self._operator("account", "arm", machine["provider"], "--reason", "demo", "--yes")
        self._wait("the first sample of its machine", SAMPLED_SECONDS_MAX, lambda: self._sampled(lease_id))
        self._customer("lease", "health", name)
        self._city.say("  XID 79: the GPU of its machine falls off the bus")
        begun = time.monotonic()
        self._city.fail_gpu(machine["address"])
        self._wait("the verdict", FOUND_SECONDS_MAX, lambda: self._verdict(lease_id) == "quarantined")
        self._city.say(f"  found by its agent, and confirmed by our own look, after {_since(begun)} s:")
        self._customer("lease", "health", name)
        self._wait("the notice", TOLD_SECONDS_MAX, lambda: "replacement_planned" in self._told(lease_id))
        self._customer("lease", "notices", name)
        self._city.say("  The customer has five minutes to save what is on it, and needs none:")
        self._customer("lease", "replace", name, "--reason", "gpu-lost", "--yes")
        self._wait("the end of its machine", TAKEN_SECONDS_MAX, lambda: self._is_taken(lease_id, machine))
        self._customer("lease", "watch", name, "--until", "ready")
        replaced = self._lease(name)
        self._customer("lease", "notices", name)
        self._customer("why", name)
        there, before = replaced["machine"], machine
        self._city.say(
            f"  from {before['address']} at {before['provider']} to {there['address']} at {there['provider']},"
        )
        self._city.say(f"  {_since(begun)} s after the GPU failed")
        return bool(replaced["state"] == "ready" and there["machine_id"] != before["machine_id"])

    def credit(self, name: str) -> int:
        """Wait for what the broken promises of a lease give back. Returns nano-US-dollars."""
        lease_id = self._lease(name)["id"]
        self._city.say("  (what is given back is computed a minute after the end of the lease)")
        self._wait("the credit", CREDITED_SECONDS_MAX, lambda: self._is_credited(lease_id))
        self._customer("sla", "show", name)
        credited: int = self._promises(lease_id)["credited"]["nano"]
        return credited

    def on_bill(self, name: str) -> int:
        """What the bill of the month says was given back for a lease, in nano-US-dollars."""
        lease_id = self._lease(name)["id"]
        lines = json.loads(self._customer("bill", "--json", show=False))["sla_credits"]
        return sum(line["amount"]["nano"] for line in lines if line["lease_id"] == lease_id)

    def pauses(self, lease_id: str) -> list[tuple[str, str]]:
        """From when to when the bill of a lease was paused because its machine failed."""
        months = self._promises(lease_id)["months"]
        failed = [down["since"] for month in months for down in month["down"] if down["cause"] == "failed"]
        journal = self._city.ask(f"/v1/leases/{lease_id}/explanation")["journal"]
        ready = [line["at"] for line in journal if line["state_after"] == "ready" != line["state_before"]]
        return list(zip(failed, ready[1:], strict=True)) if failed else []

    def _wait(self, what: str, seconds_max: float, look: Callable[[], object]) -> None:
        wait_for(what, seconds_max, look, self._city.children["reconciler"])

    def _lease(self, name: str) -> dict[str, Any]:
        leases: list[dict[str, Any]] = self._city.ask("/v1/leases?limit=100")["items"]
        return next(lease for lease in leases if lease["name"] == name)

    def _sampled(self, lease_id: str) -> bool:
        return self._city.ask(f"/v1/leases/{lease_id}/metrics")["latest"] is not None

    def _verdict(self, lease_id: str) -> str:
        machines = self._city.ask(f"/v1/leases/{lease_id}/health")["machines"]
        return str(machines[0]["verdict"]) if machines else ""

    def _told(self, lease_id: str) -> set[str]:
        return {notice["kind"] for notice in self._city.ask(f"/v1/leases/{lease_id}/notices")["items"]}

    def _is_taken(self, lease_id: str, machine: dict[str, Any]) -> bool:
        lease = self._city.ask(f"/v1/leases/{lease_id}")
        return bool(lease["state"] != "ready" or lease["machine"]["machine_id"] != machine["machine_id"])

    def _promises(self, lease_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._city.ask(f"/v1/leases/{lease_id}/sla")
        return found

    def _is_credited(self, lease_id: str) -> bool:
        breaches = self._promises(lease_id)["breaches"]
        return bool(breaches) and all(breach["credited_at"] for breach in breaches)


def _since(begun: float) -> str:
    return f"{time.monotonic() - begun:.0f}"
