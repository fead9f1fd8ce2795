"""A replica of the loops of money as a process of its own, for `metering`: it runs what each line of its input says.

A line is a JSON object: `loop`, which is `meter` or `rate`, and `at`, the time of the benchmark. The answer is a line
with the number of intervals.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from datetime import datetime
from typing import Literal, Self

from benchmarks import used_leases
from benchmarks.used_leases import MONTH, Clock

Step = Literal["meter", "rate"]


class Replica:
    """Such a process, from outside."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str) -> Self:
        command = (sys.executable, "-m", "benchmarks.metering_replica", url)
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    async def run(self, loop: Step, at: datetime) -> int:
        """Run a loop to its end. Returns how many intervals it worked on."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a replica has no input and no output")
        self._process.stdin.write(json.dumps({"loop": loop, "at": at.isoformat()}).encode() + b"\n")
        await self._process.stdin.drain()
        return int(await self._process.stdout.readline())

    async def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


async def _serve(url: str) -> None:
    clock = Clock(MONTH)
    world = used_leases.loop_world(url, clock.now)
    loops = {"meter": used_leases.meter, "rate": used_leases.rate}
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        clock.time = datetime.fromisoformat(asked["at"])
        print(await loops[asked["loop"]](world), flush=True)
    await world.db.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
