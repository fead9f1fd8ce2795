"""What is around the cards, read from a tree of files that is laid out as the kernel's is."""

from pathlib import Path

import pytest

from data_plane.agent import host, inventory
from data_plane.documents.inventory import Nic, NumaNode, Nvme
from tests.support.cards import library


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two NUMA nodes, two disks of which one is split, an RDMA card, a virtual machine's card, and a bridge."""
    write(tmp_path, "devices/system/node/node0/cpulist", "0-31,64-95\n")
    write(
        tmp_path,
        "devices/system/node/node0/meminfo",
        "Node 0 MemTotal:       1055842304 kB\nNode 0 MemFree: 1 kB\n",
    )
    write(tmp_path, "devices/system/node/node10/cpulist", "32-63\n")
    write(tmp_path, "devices/system/node/node2/cpulist", "\n")
    write(tmp_path, "devices/system/node/possible", "0-10\n")
    for bus_id, node in (
        ("0000:01:00.0", "0"),
        ("0000:05:00.0", "1"),
        ("0000:1b:00.0", "1"),
        ("0000:00:03.0", "-1"),
    ):
        write(tmp_path, f"devices/pci0000:00/{bus_id}/numa_node", f"{node}\n")
        write(tmp_path, f"devices/pci0000:00/{bus_id}/local_cpulist", "32-63\n")
        link(tmp_path, f"bus/pci/devices/{bus_id}", f"devices/pci0000:00/{bus_id}")
    for name in ("nvme0", "nvme10", "nvme2"):
        write(
            tmp_path,
            f"devices/pci0000:00/0000:01:00.0/nvme/{name}/model",
            "SAMSUNG MZQL23T8HCLS-00A07              \n",
        )
        link(tmp_path, f"class/nvme/{name}", f"devices/pci0000:00/0000:01:00.0/nvme/{name}")
        link(
            tmp_path, f"devices/pci0000:00/0000:01:00.0/nvme/{name}/device", "devices/pci0000:00/0000:01:00.0"
        )
    write(tmp_path, "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/size", "7501476528\n")
    write(tmp_path, "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n2/size", "8\n")
    write(tmp_path, "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1/size", "999\n")
    net(tmp_path, "ens1f0np0", "0000:05:00.0", driver="mlx5_core", speed="400000")
    write(tmp_path, "devices/pci0000:00/0000:05:00.0/infiniband/mlx5_0/node_guid", "")
    net(tmp_path, "eth0", "0000:00:03.0", within="virtio0", driver="virtio_net", speed="-1")
    (tmp_path / "class/net/br0").mkdir(parents=True)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def link(root: Path, path: str, target: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(root / target)


def net(root: Path, name: str, bus_id: str, *, driver: str, speed: str, within: str = "") -> None:
    device = f"devices/pci0000:00/{bus_id}/{within}".rstrip("/")
    write(root, f"{device}/net/{name}/speed", f"{speed}\n")
    link(root, f"{device}/net/{name}/device", device)
    write(root, f"bus/drivers/{driver}/bind", "")
    link(root, f"{device}/driver", f"bus/drivers/{driver}")
    link(root, f"class/net/{name}", f"{device}/net/{name}")


def test_nodes_come_by_number_and_a_node_may_have_memory_or_processors_alone(sysfs: Path) -> None:
    assert host.numa_nodes(sysfs) == (
        NumaNode(0, "0-31,64-95", 1031096),
        NumaNode(2, None, None),
        NumaNode(10, "32-63", None),
    )


def test_a_disk_is_the_sum_of_its_namespaces_and_not_of_its_partitions(sysfs: Path) -> None:
    nvmes = host.nvmes(sysfs)
    assert [one.name for one in nvmes] == ["nvme0", "nvme2", "nvme10"]
    assert nvmes[0] == Nvme("nvme0", "SAMSUNG MZQL23T8HCLS-00A07", (7501476528 + 8) * 512, "0000:01:00.0", 0)
    assert nvmes[1].size_bytes is None


def test_network_devices_have_hardware_behind_them(sysfs: Path) -> None:
    assert host.nics(sysfs) == (
        Nic("eth0", "virtio_net", None, "0000:00:03.0", None, ()),
        Nic("ens1f0np0", "mlx5_core", 400000, "0000:05:00.0", 1, ("mlx5_0",)),
    )


def test_a_card_is_near_its_node(sysfs: Path) -> None:
    (gpu, other, *_) = inventory.read(library("h100-sxm-8"), sysfs).gpus
    assert (gpu.bus_id, gpu.numa_node, gpu.local_cpus) == ("0000:1b:00.0", 1, "32-63")
    assert (other.numa_node, other.local_cpus) == (None, None)


def test_no_node_is_not_node_minus_one(sysfs: Path) -> None:
    assert host.locality(sysfs, "0000:00:03.0")[0] is None


def test_a_machine_without_sysfs_has_nothing_and_raises_nothing(tmp_path: Path) -> None:
    assert (host.numa_nodes(tmp_path), host.nvmes(tmp_path), host.nics(tmp_path)) == ((), (), ())
    assert host.locality(tmp_path, "0000:01:00.0") == (None, None)


@pytest.mark.parametrize(
    "odd", [b"", b"\xff\xfe", b"x" * 100_000, b"99999999999999999999999999", b"0x10", b"-", b"\x00\n"]
)
def test_an_odd_file_is_null_and_not_an_error(sysfs: Path, odd: bytes) -> None:
    for path in (
        "devices/system/node/node0/cpulist",
        "devices/system/node/node0/meminfo",
        "devices/pci0000:00/0000:01:00.0/numa_node",
        "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/size",
        "devices/pci0000:00/0000:05:00.0/net/ens1f0np0/speed",
    ):
        (sysfs / path).write_bytes(odd)
    assert host.numa_nodes(sysfs)[0] == NumaNode(0, None, None)
    assert host.nvmes(sysfs)[0].numa_node is None
    assert host.nics(sysfs)[1].speed_mbps is None


def test_links_in_a_circle_end(sysfs: Path) -> None:
    net_device = sysfs / "class/net/loop0"
    net_device.mkdir()
    (net_device / "device").symlink_to(net_device / "device")
    assert len(host.nics(sysfs)) == 2
