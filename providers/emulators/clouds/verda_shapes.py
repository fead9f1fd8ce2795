"""The objects of Verda's contract, as the emulator takes and shows them."""

from datetime import datetime
from typing import Any

import msgspec

from providers.emulators.clouds.verda_account import (
    HOURS_PER_MONTH,
    USD_PER_GB_MONTH,
    Account,
    Instance,
    Script,
    Volume,
)


class TokenIn(msgspec.Struct):
    grant_type: str
    client_id: str = ""
    client_secret: str = ""


class KeyIn(msgspec.Struct):
    name: str
    key: str


class ScriptIn(msgspec.Struct):
    name: str
    script: str


class VolumeDeleteIn(msgspec.Struct):
    is_permanent: bool = False


class TagIn(msgspec.Struct):
    key: str
    value: str | None = None


class OsVolumeIn(msgspec.Struct):
    name: str
    size: int
    tags: list[TagIn] = []


class LaunchIn(msgspec.Struct):
    instance_type: str
    image: str
    hostname: str
    location_code: str
    description: str = ""
    ssh_key_ids: str | list[str] = []
    startup_script_id: str | None = None
    os_volume: OsVolumeIn | None = None
    is_spot: bool = False
    contract: str = "PAY_AS_YOU_GO"
    tags: list[TagIn] = []


class ActionIn(msgspec.Struct):
    action: str
    id: str | list[str]
    volume_ids: list[str] | None = None
    delete_permanently: bool = False


def machine_on_wire(account: Account, instance: Instance) -> dict[str, Any]:
    """The contract's instance object."""
    return instance.kind.of_instance() | {
        "id": instance.id,
        "ip": account.instances.address(instance),
        "status": account.status(instance),
        "created_at": _time(instance.launched_at),
        "hostname": instance.hostname,
        "description": instance.description,
        "tags": instance.tags,
        "location": instance.native_region,
        "price_per_hour": float(instance.kind.usd_per_hour),
        "is_spot": False,
        "instance_type": instance.native_type,
        "image": instance.image,
        "os_name": "Ubuntu 24.04",
        "startup_script_id": instance.startup_script_id or "",
        "ssh_key_ids": instance.ssh_key_ids,
        "os_volume_id": instance.os_volume_id,
        "jupyter_token": "",
        "contract": "PAY_AS_YOU_GO",
        "pricing": "FIXED_PRICE",
        "volume_ids": [each.id for each in account.volumes_of(instance)],
    }


def volume_on_wire(volume: Volume) -> dict[str, Any]:
    monthly = float(volume.size * USD_PER_GB_MONTH)
    return {
        "id": volume.id,
        "instance_id": volume.instance_id,
        "instances": [],
        "name": volume.name,
        "created_at": _time(volume.made_at),
        "status": volume.status,
        "size": volume.size,
        "is_os_volume": True,
        "target": "vda",
        "type": "NVMe",
        "location": volume.location,
        "ssh_key_ids": [],
        "pseudo_path": None,
        "create_directory_command": None,
        "mount_command": None,
        "filesystem_to_fstab_command": None,
        "long_term": None,
        "contract": "PAY_AS_YOU_GO",
        "base_hourly_cost": monthly / HOURS_PER_MONTH,
        "monthly_price": monthly,
        "currency": "usd",
        "tags": volume.tags,
    }


def volume_type_on_wire(name: str, usd_per_gb_month: float) -> dict[str, Any]:
    return {
        "type": name,
        "price": {"price_per_month_per_gb": usd_per_gb_month, "cps_per_gb": 7.6e-08, "currency": "usd"},
        "is_shared_fs": False,
        "burst_bandwidth": 2500,
        "continuous_bandwidth": 2000,
        "internal_network_speed": 50,
        "iops": "100k",
        "throughput_gbps": 4,
    }


def script_on_wire(script: Script) -> dict[str, Any]:
    return {
        "id": script.id,
        "name": script.name,
        "script": script.script,
        "created_at": _time(script.made_at),
    }


def _time(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
