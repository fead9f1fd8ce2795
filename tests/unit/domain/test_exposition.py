"""Samples as Prometheus knows them: each series once, in the units of dcgm-exporter."""

from datetime import UTC, datetime

from control_plane.domain.exposition import Named, exposed, points
from control_plane.domain.reading import GpuReading, Reading, ServerReading

NAMED = Named("train-1", "le_1", "default", "org_1", "mc_1", "eu", "h100-sxm-80gb")


def test_servers_in_pods_at_the_same_port_are_series_of_their_own() -> None:
    servers = tuple(
        ServerReading(8000, "vllm", running=running, pod_ip=pod_ip)
        for running, pod_ip in ((1, None), (2, "10.42.3.7"), (3, "10.42.3.9"))
    )
    text = exposed(
        points(Reading(servers=servers), NAMED, at=datetime(2026, 11, 29, tzinfo=UTC), verdict=None)
    )
    found = {
        tuple(line.split('pod_ip="')[1:]): line.rpartition(" ")[2]
        for line in text.splitlines()
        if line.startswith("vllm:num_requests_running{")
    }
    assert sorted(float(value) for value in found.values()) == [1, 2, 3]
    assert sorted(key[0].split('"')[0] if key else "" for key in found) == ["", "10.42.3.7", "10.42.3.9"]


GPU = GpuReading(
    0,
    power_mw=701_500,
    energy_j=5,
    throttled_power_ms=7,
    throttled_thermal_ms=3,
    memory_used_mib=70_000,
    memory_free_mib=10_000,
    memory_reserved_mib=600,
    encoder_percent=11,
    decoder_percent=12,
    graphics_active_bp=9_000,
    tensor_active_bp=4_250,
    dram_active_bp=3_100,
    nvlink_kib_per_second=2_500_000,
    pcie_sent_bytes_per_second=20,
    pcie_received_bytes_per_second=30,
)
IN_UNITS_OF_DCGM = {
    "DCGM_FI_DEV_POWER_USAGE": 701.5,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5_000,
    "DCGM_FI_DEV_POWER_VIOLATION": 7_000,
    "DCGM_FI_DEV_THERMAL_VIOLATION": 3_000,
    "DCGM_FI_DEV_FB_USED": 70_000,
    "DCGM_FI_DEV_FB_FREE": 10_000,
    "DCGM_FI_DEV_FB_RESERVED": 600,
    "DCGM_FI_DEV_ENC_UTIL": 11,
    "DCGM_FI_DEV_DEC_UTIL": 12,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.425,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.31,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 2_500,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 20,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 30,
}
"""mJ, us, MiB, per cent, shares, MB/s and bytes per second."""


def test_figures_of_a_gpu_have_the_units_that_their_names_have_in_dcgm_exporter() -> None:
    found = points(Reading(gpus=(GPU,)), NAMED, at=datetime(2026, 11, 29, tzinfo=UTC), verdict=None)
    values = {point.family.name: point.value for point in found}
    assert {name: values[name] for name in IN_UNITS_OF_DCGM} == IN_UNITS_OF_DCGM
