"""How busy a host is, from files as the kernel writes them, and from whatever else is there."""

import os
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_plane.agent.host_usage import HostUsage
from data_plane.documents import records
from data_plane.documents.sample import Disk, Filesystem, Host, Nic, Pressure

STAT = "cpu  {} 0 100 {} {} 0 0 {} 0 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\nprocs_running 3\n"
MOUNTS = """29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
30 29 259:2 /var /var ro,relatime - ext4 /dev/root rw
31 29 0:25 / /tmp rw - tmpfs tmpfs rw
32 29 0:50 / /data rw - nfs4 filer:/data rw
33 29 259:9 / /scratch\\040disk rw - xfs /dev/nvme1n1 rw
34 29 259:8 / /scratch rw - xfs /dev/nvme2n1 rw
35 29 0:60 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw
"""
ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\nhost0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
FILES = {
    "proc/stat": STAT.format(1000, 8000, 500, 100),
    "proc/loadavg": "12.34 1.00 0.50 3/1000 4242\n",
    "proc/meminfo": "MemTotal:       2097152 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\nSwapTotal: 4096 kB\nSwapFree: 2048 kB\n",
    "proc/vmstat": "nr_free_pages 5\npswpin 77\npswpout 1\noom_kill 3\n",
    "proc/pressure/cpu": "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "proc/pressure/memory": "some avg10=1.23 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.40 avg60=0.00 avg300=0.00 total=1\n",
    "proc/diskstats": " 259 0 nvme0n1 100 0 2000 50 200 0 4000 400 0 777 450 0 0 0 0 0 0\n 259 1 nvme0n1p1 1 0 1 1 1 0 1 1 0 1 1\n   7 0 loop0 1 0 1 1 1 0 1 1 0 1 1\n",
    "proc/self/mountinfo": MOUNTS,
    "proc/net/route": ROUTES,
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/eth0/device": "",
    "sys/class/net/eth0/statistics/rx_bytes": "1000\n",
    "sys/class/net/eth0/statistics/tx_dropped": "4\n",
    "sys/class/net/host0/operstate": "down\n",
    "sys/class/net/veth1/operstate": "up\n",
    "sys/class/net/lo/operstate": "unknown\n",
    "sys/block/nvme0n1/device": "",
    "sys/block/loop0/size": "1",
    "proc/1/comm": "init\n",
    "proc/22/comm": "sh\n",
}  # fmt: skip


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def size(_: str) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, 1 << 20, 1 << 19, 1 << 19, 1000, 250, 250, 0, 255))


def test_a_host_is_read_from_what_the_kernel_writes(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    usage = HostUsage(tmp_path, size)
    first = usage.read()
    assert first == Host(
        cpus=2,
        load_1m_hundredths=1234,
        memory_total_mib=2048,
        memory_available_mib=1024,
        swap_total_mib=4,
        swap_free_mib=2,
        swapped_in_pages=77,
        oom_kills=3,
        processes=2,
        pressure=Pressure(1250, 123, 40, None, None),
        disks=(Disk("nvme0n1", 2000 * 512, 4000 * 512, 777),),
        filesystems=(Filesystem("/", 4096, 2048, 7500), Filesystem("/scratch", 4096, 2048, 7500)),
        nics=(
            Nic("eth0", up=True, received_bytes=1000, sent_dropped=4),
            Nic("host0", up=False),
        ),
    )
    write(
        tmp_path,
        {
            "proc/stat": STAT.format(1700, 8200, 550, 150),
            "proc/diskstats": FILES["proc/diskstats"].replace("100 0 2000 50 200 0", "110 0 2000 55 200 0"),
        },
    )
    second = usage.read()
    assert (second.cpu_bp, second.cpu_wait_bp, second.cpu_steal_bp) == (7500, 500, 500)
    assert (second.disks[0].read_us, second.disks[0].write_us) == (500, None)


def test_a_host_that_says_nothing_is_not_known(tmp_path: Path) -> None:
    assert HostUsage(tmp_path).read() == Host()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.dictionaries(st.sampled_from(sorted(FILES)), st.text(max_size=60), max_size=4), st.integers(0, 400))
def test_whatever_the_files_have_a_host_is_within_its_bounds(
    tmp_path: Path, files: dict[str, str], cut: int
) -> None:
    write(tmp_path, {name: content[:cut] for name, content in FILES.items()} | files)
    usage = HostUsage(tmp_path, size)
    for _ in range(2):
        host = usage.read()
        document = vars(host) | {
            "pressure": vars(host.pressure),
            **{
                name: [vars(each) for each in getattr(host, name)]
                for name in ("disks", "filesystems", "nics")
            },
        }
        assert records.read(Host, document, "host") == host


def test_this_host_is_read() -> None:
    host = HostUsage().read()
    assert host.memory_total_mib
    assert host.cpus
