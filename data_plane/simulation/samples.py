"""What the agents of simulated machines sample, and a script of what happens to their GPUs and inference servers.

    script = SampleScript()
    script.add(Fault(at_ms=now + 60_000, gpu=3, xid=79, changes={"lost": True}))         # falls off the bus
    script.add(Fault(now, gpu=0, until_ms=now + 300_000, changes={"throttle_reasons": 64}))  # for five minutes
    script.servers.append(SimulatedServer(since_ms=now, kv_cache_bp=2_000, growth_bp_per_minute=500))
    script.sample(health, at_ms)

Time is an argument: the same script gives the same samples, whenever they are asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from data_plane.documents import records
from data_plane.documents.health import Health
from data_plane.documents.sample import (
    XIDS_MAX,
    Engine,
    Gpu,
    Host,
    Sample,
    Server,
    Xid,
    sample_gpus,
)

HOST = Host(
    cpus=192,
    cpu_bp=1_000,
    cpu_wait_bp=0,
    cpu_steal_bp=0,
    load_1m_hundredths=1_200,
    memory_total_mib=2_063_500,
    memory_available_mib=1_800_000,
    swap_total_mib=0,
    swap_free_mib=0,
    swapped_in_pages=0,
    oom_kills=0,
    processes=900,
)
_KV_CACHE_BP_MAX = 10_000


@dataclass(frozen=True)
class Fault:
    """What happens to a GPU from `at_ms` on."""

    at_ms: int
    """Unix milliseconds, as all times here."""
    gpu: int = 0
    xid: int | None = None
    """An error of the driver at that time."""
    changes: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of `sample.Gpu` and their values."""
    until_ms: int | None = None
    """When the card is as before again; None if it stays so."""

    def holds(self, at_ms: int) -> bool:
        return self.at_ms <= at_ms and (self.until_ms is None or at_ms < self.until_ms)


@dataclass(frozen=True)
class SimulatedServer:
    """An inference server that serves more and more requests at once, and so needs more and more of its KV cache."""

    since_ms: int
    port: int = 8000
    engine: Engine = "vllm"
    kv_cache_bp: int = 2_000
    """At its beginning."""
    growth_bp_per_minute: int = 0
    tokens_per_second: int = 2_000

    def at(self, at_ms: int) -> Server:
        seconds = max(0, at_ms - self.since_ms) // 1000
        wanted = self.kv_cache_bp + self.growth_bp_per_minute * seconds // 60
        short = max(0, wanted - _KV_CACHE_BP_MAX)
        return Server(
            port=self.port,
            engine=self.engine,
            kv_cache_bp=min(wanted, _KV_CACHE_BP_MAX),
            running=min(wanted, _KV_CACHE_BP_MAX) // 100,
            waiting=short // 100,
            preemptions=short // 10,
            prompt_tokens=4 * self.tokens_per_second * seconds,
            generation_tokens=self.tokens_per_second * seconds,
            prompt_tokens_per_second=4 * self.tokens_per_second,
            generation_tokens_per_second=self.tokens_per_second,
            ttft_us=200_000 + 2_000 * (short // 10),
            itl_us=20_000,
        )


@dataclass
class SampleScript:
    """Of one machine."""

    faults: list[Fault] = field(default_factory=list[Fault])
    servers: list[SimulatedServer] = field(default_factory=list[SimulatedServer])
    failure: str | None = None
    """Why its GPUs cannot be read."""
    sequence: int = 0
    _told: int = 0
    """Errors up to this time were in a sample."""

    def add(self, fault: Fault) -> None:
        """Raises strict.Malformed for a change that no card can have."""
        records.read(Gpu, {**vars(Gpu(fault.gpu)), **fault.changes}, "changes")
        self.faults.append(fault)

    def sample(self, health: Health, at_ms: int) -> Sample:
        """The next sample of a machine whose cards, without faults, are as in `health`."""
        self.sequence += 1
        xids = self._xids(health, at_ms)
        if self.failure is None:
            self._told = max(self._told, at_ms)
        return Sample(
            sequence=self.sequence,
            at_ms=at_ms,
            boot="",
            uptime_seconds=0,
            spooled=0,
            dropped=0,
            source=None if self.failure else health.source,
            failure=self.failure,
            gpus=() if self.failure else tuple(self._gpu(gpu, at_ms) for gpu in sample_gpus(health)),
            xids=xids[-XIDS_MAX:],
            xids_more=max(0, len(xids) - XIDS_MAX),
            events=self.failure is None,
            kernel_log=None if self.failure else health.kernel_log,
            host=HOST,
            servers=tuple(server.at(at_ms) for server in self.servers if server.since_ms <= at_ms),
        )

    def _xids(self, health: Health, at_ms: int) -> tuple[Xid, ...]:
        if self.failure is not None:
            return ()
        new = sorted(
            (fault.at_ms, fault.gpu, fault.xid)
            for fault in self.faults
            if fault.xid is not None and self._told < fault.at_ms <= at_ms
        )
        buses = {gpu.index: gpu.bus_id for gpu in health.gpus}
        return tuple(Xid("xid", number, buses.get(gpu), when // 1000) for when, gpu, number in new)

    def _gpu(self, gpu: Gpu, at_ms: int) -> Gpu:
        changes: dict[str, object] = {}
        for fault in sorted(self.faults, key=lambda each: each.at_ms):
            if fault.gpu == gpu.index and fault.holds(at_ms):
                changes |= fault.changes
        return records.read(Gpu, {**vars(gpu), **changes}, "GPU") if changes else replace(gpu)
