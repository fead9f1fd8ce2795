"""Samples as machines send them."""

import random

from data_plane.documents.sample import (
    Disk,
    Filesystem,
    Gpu,
    Host,
    Nic,
    Pressure,
    Sample,
    Server,
    Xid,
)
from data_plane.documents.sample_delivery import Delivery

AT_MS = 1_795_800_000_000


def busy_sample(sequence: int = 1, *, gpus: int = 8, at_ms: int = AT_MS) -> Sample:
    """Of a machine with all GPUs at work and every value known, so that no two cards compress to the same."""
    chance = random.Random(sequence)
    return Sample(
        sequence=sequence,
        at_ms=at_ms,
        boot="0a2ab135-9d07-4dc4-b84f-559402d87ffd",
        uptime_seconds=3600,
        spooled=0,
        dropped=0,
        source="nvml",
        failure=None,
        gpus=tuple(busy_gpu(index, chance) for index in range(gpus)),
        xids=(),
        xids_more=0,
        events=True,
        kernel_log="kmsg",
        host=busy_host(chance),
        servers=(busy_server(8000, chance),),
    )


def busy_gpu(index: int, chance: random.Random) -> Gpu:
    number = chance.randrange
    uuid = f"{number(1 << 128):032x}"
    return Gpu(
        index=index,
        uuid=f"GPU-{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}",
        bus_id=f"0000:{16 * index + 1:02x}:00.0",
        memory_total_mib=81_559,
        memory_used_mib=(used := number(70_000, 81_000)),
        memory_free_mib=81_559 - used - 551,
        utilisation_percent=number(101),
        memory_utilisation_percent=number(101),
        processes=1,
        sm_mhz=number(1_200, 1_980),
        memory_mhz=2_619,
        power_mw=number(400_000, 700_000),
        power_limit_mw=700_000,
        energy_j=number(1 << 30),
        temperature_c=number(50, 75),
        memory_temperature_c=number(60, 90),
        throttle_reasons=4,
        throttled_power_ms=number(1 << 24),
        throttled_thermal_ms=0,
        throttled_hardware_thermal_ms=0,
        throttled_power_brake_ms=0,
        ecc_corrected_volatile=number(10),
        ecc_uncorrected_volatile=0,
        ecc_corrected_aggregate=number(100),
        ecc_uncorrected_aggregate=0,
        rows_remapped_corrected=0,
        rows_remapped_uncorrected=0,
        rows_pending=False,
        rows_failed=False,
        recovery_action=0,
        nvlinks=18,
        nvlinks_active=18,
        nvlink_crc_flit_errors=number(100),
        nvlink_crc_data_errors=number(100),
        nvlink_replays=0,
        nvlink_recoveries=0,
        pcie_generation=5,
        pcie_width=16,
        pcie_width_max=16,
        pcie_replays=number(10),
        pcie_generation_max=5,
        memory_reserved_mib=551,
        encoder_percent=0,
        decoder_percent=0,
        graphics_active_bp=number(10_001),
        tensor_active_bp=number(10_001),
        dram_active_bp=number(10_001),
        nvlink_kib_per_second=number(1 << 28),
        pcie_sent_bytes_per_second=number(1 << 34),
        pcie_received_bytes_per_second=number(1 << 34),
        fabric_state="completed",
        fabric_health="healthy",
    )


def busy_host(chance: random.Random) -> Host:
    number = chance.randrange
    return Host(
        cpus=192,
        cpu_bp=number(10_001),
        cpu_wait_bp=number(100),
        cpu_steal_bp=0,
        load_1m_hundredths=number(20_000),
        memory_total_mib=2_063_500,
        memory_available_mib=number(2_000_000),
        swap_total_mib=0,
        swap_free_mib=0,
        swapped_in_pages=0,
        oom_kills=0,
        processes=number(4_000),
        pressure=Pressure(number(1000), 0, 0, number(1000), number(1000)),
        disks=tuple(
            Disk(f"nvme{n}n1", number(1 << 50), number(1 << 50), number(1 << 32), number(500), number(500))
            for n in range(4)
        ),
        filesystems=(Filesystem("/", 1_800_000, number(1_800_000), 120),),
        nics=tuple(
            Nic(f"eth{n}", up=True, received_bytes=number(1 << 50), sent_bytes=number(1 << 50),
                received_dropped=0, sent_dropped=0, received_errors=0, sent_errors=0)
            for n in range(2)
        ),
    )  # fmt: skip


def busy_server(port: int, chance: random.Random) -> Server:
    number = chance.randrange
    return Server(
        port=port,
        engine="vllm",
        kv_cache_bp=number(10_001),
        running=number(256),
        waiting=number(64),
        preemptions=number(1000),
        prompt_tokens=number(1 << 40),
        generation_tokens=number(1 << 40),
        prompt_tokens_per_second=number(100_000),
        generation_tokens_per_second=number(20_000),
        ttft_us=number(2_000_000),
        itl_us=number(60_000),
    )


def busy_delivery(count: int = 1, *, first: int = 1, gpus: int = 8) -> Delivery:
    samples = tuple(
        busy_sample(first + n, gpus=gpus, at_ms=AT_MS + 15_000 * (first + n)) for n in range(count)
    )
    return Delivery(samples[-1].at_ms + 40, samples)


XID_79 = Xid("xid", 79, "0000:01:00.0", AT_MS // 1000)
