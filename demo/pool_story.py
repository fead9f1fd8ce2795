"""The demo's chapter about a warm pool: the second lease of its SKU gets a machine that waits for it."""

import json
from collections.abc import Callable
from typing import Any

from demo.city import City
from demo.processes import wait_for

POOL = "a100"
SKU = "a100-sxm-80.1x"
REGION = "eu"
WARM_SECONDS_MAX = 90
Typed = Callable[..., str]
"""Types a command of ours, and shows it with its output unless it is told not to."""


class PoolStory:
    def __init__(self, city: City, operator: Typed) -> None:
        self._city = city
        self._operator = operator

    def create(self) -> None:
        bounds = ("--min", "1", "--max", "1", "--policy", "fixed", "--budget", "50")
        self._operator("pool", "create", POOL, "--sku", SKU, "--region", REGION, *bounds, "--begin")

    def wait_until_warm(self) -> None:
        wait_for(
            "the pool's machine", WARM_SECONDS_MAX, self._machines_ready, self._city.children["reconciler"]
        )
        self._operator("pool", "show", POOL)

    def delete(self) -> None:
        """Its machine that waits is terminated."""
        self._operator("pool", "delete", POOL)

    def _machines_ready(self) -> int:
        shown: dict[str, Any] = json.loads(self._operator("pool", "show", POOL, "--json", show=False))
        return int(shown["verified"])
