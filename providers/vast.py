"""Vast.ai, API v0 and v1: a market of single machines, rented as virtual machines. Its traps (official documentation
and OpenAPI in vast-ai/docs @c624622, read 2026-11-23; what others' clients do or saw is named):

- Offers ("asks") are single machines, each sold once, and a host offers its GPUs in several sizes at a time: after one
  ask is taken, others are gone too. What is taken is not listed, so no offer of ours is ever listed as sold out. It is
  refused with `no_such_ask`: HTTP 410, or 404 with the code `invalid_args` and the words in the message.
- Only virtual machines are bought: containers have neither systemd nor WireGuard. Few hosts offer them
  (`vms_enabled`), and multi-GPU hosts are advised against it, because NVLink does not work in them yet.
- Anybody may be a host. Only verified hosts in data centers, with a static address, a reliability of at least 0.98 and
  30 days left, are offered. Each offer is checked again, because listings may not satisfy their filters (dstack).
  The number of an ask is used once, so failures count for its host (`supplier`).
- A contract has an end that is fixed when it is made; then the instance is stopped, and deleted 48 hours later. A lease
  that lasts longer is interrupted.
- The memory that is listed is that of the host. The share of an offer is that of its CPU cores (dstack).
- Prices are JSON numbers. `dph_total` includes the disk of the size that the search names. Traffic costs extra, at
  prices of the host's own, in any state.
- A launch has no idempotency key. The launch key is the label, which is in the list. People can change it there.
- A refused launch may still name a `new_contract`, an instance that exists (dstack): such an answer is unclear.
- With `cancel_unavail`, a launch that cannot start is refused; without it, the instance could wait as `scheduling`.
- The user data is `onstart`, at most 4,096 characters. A virtual machine runs it when it starts. Whether as root, and
  before or after sshd listens, is not documented; the script asks sudo, and we wait for our host key. The list repeats
  it, with the machine's private host key: whoever has the API key can read it.
- A virtual machine gets every SSH key of the account. Without any it is refused (`no_ssh_key_for_vm`), so the key of
  our authority is added, with which nobody logs in. Until our script ran, the account's other keys open the machine.
  So keys of authorities that leaked or were replaced are deleted before the next launch.
  An empty list of keys is HTTP 404.
- The address is shared and ports are mapped: SSH is not on port 22 but on the `HostPort` of `22/tcp`, which is listed
  once the machine runs. WireGuard's port is not mapped, since it would get another number: the machine counts as behind
  NAT, its tunnels go out from it, and two such machines meet at the hub. There is no firewall to set.
- A reboot keeps the GPUs. A stop releases them to anybody, so that a start may never come, and the disk of a stopped
  instance has a price of the host's own, usually a higher one, that no list tells: nothing is stopped.
- The status has several parts. `actual_status` is null at first. Where something else than `running` is intended, we
  show both: Vast stops machines when the balance is used up, and we stop none. A machine that was shut down from inside
  is meant to run, and so is one that broke: then the words do not tell whose doing it is. `offline` means that Vast
  lost contact with the host.
- A destroyed instance is not listed any more, and is HTTP 404.
- Every endpoint has an interval of its own between calls. An answer of 429 is plain text without Retry-After.
- The search answers an unknown key with HTTP 404 and "Invalid user key", everything else with 401.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from control_plane.domain.block import BlockScope
from control_plane.domain.ids import ProviderRef
from control_plane.domain.user_data import UserDataKind
from providers.base import (
    Capabilities,
    CountedBy,
    LaunchOrder,
    Listed,
    ListedState,
    OrderRefused,
    Page,
    PowerAction,
    ProviderFirewall,
    RateLimit,
    Sighting,
    Verb,
)
from providers.error_law import ErrorDetail, Meaning, Rule, error_for
from providers.listings import (
    UnreadableAnswer,
    address_or_name,
    ours,
    reference_of,
    sighting,
    whole_listing,
)
from providers.registered_keys import key_material
from providers.rest import ErrorContract, Rest, detail_from
from providers.signing import bearer
from providers.vast_catalogue import Asks, offers, search

NAME = "vast"


@dataclass(frozen=True, slots=True)
class Settings:
    api_key: str = field(repr=False)
    base_url: str = "https://console.vast.ai"
    image: str = "docker.io/vastai/kvm:ubuntu_terminal"
    """An image of docker.io/vastai/kvm: no other boots as a virtual machine."""
    disk_gib: int = 100
    """Of every machine. It is a part of the price of an offer."""


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # Not documented: a safety margin.
    boot_seconds_max=1_800.0,  # Not documented, except that virtual machines take longer than containers.
    user_data_bytes_max=4_096,
    user_data_kind=UserDataKind.SHELL_SCRIPT,
    rate_limits=(
        RateLimit("create", 1, 4.5, frozenset({Verb.LAUNCH})),
        RateLimit("destroy", 1, 3.0, frozenset({Verb.TERMINATE})),
        RateLimit("list", 1, 1.0, frozenset({Verb.INVENTORY})),
        RateLimit("keys", 1, 1.0, frozenset({Verb.PREPARE})),
        RateLimit("reboot", 1, 1.0, frozenset({Verb.POWER})),
        RateLimit("search", 10, 60.0, frozenset({Verb.OFFERS}), counted_by=CountedBy.SOURCE_ADDRESS),
    ),
    billed_while_booting=False,  # But for its disk.
    power=frozenset({PowerAction.REBOOT}),
    firewall=ProviderFirewall.FIXED,  # Behind NAT, but for the ports that were asked for with the launch.
)

PAGE_SIZE = 25
_PREPARE_CALLS_MAX = 4

STATES = {
    "null": ListedState.PROVISIONING,
    "created": ListedState.PROVISIONING,
    "scheduling": ListedState.PROVISIONING,
    "loading": ListedState.PROVISIONING,
    "rebooting": ListedState.PROVISIONING,
    "running": ListedState.RUNNING,
    "stopped": ListedState.OFF_OR_FAILED,
    "frozen": ListedState.OFF_OR_FAILED,
    "exited": ListedState.OFF_OR_FAILED,
    "offline": ListedState.UNKNOWN,
    "unknown": ListedState.UNKNOWN,
    "stopped/stopped": ListedState.STOPPED_BY_PROVIDER,
    "exited/stopped": ListedState.STOPPED_BY_PROVIDER,
}
"""`actual_status`, with `intended_status` behind it where that is not `running`."""


class MappedPort(msgspec.Struct):
    port: str = msgspec.field(name="HostPort")


class Instance(msgspec.Struct):
    """The part of the instance object that we read. The user data and tokens stay unread."""

    id: int
    actual_status: str | None = None
    intended_status: str | None = None
    label: str | None = None
    public_ipaddr: str | None = None
    ports: dict[str, list[MappedPort] | None] | None = None


class Instances(msgspec.Struct):
    instances: list[Instance]
    total_instances: int
    next_token: str | None = None


class Launched(msgspec.Struct):
    success: bool
    new_contract: int


class Done(msgspec.Struct):
    success: bool


class SshKey(msgspec.Struct):
    id: int
    key: str
    deleted_at: str | None = None


class KeyNumber(msgspec.Struct):
    id: int


class KeyAdded(msgspec.Struct):
    success: bool
    key: KeyNumber


class Failure(msgspec.Struct):
    success: bool = False
    error: Any = None
    msg: Any = None
    message: Any = None
    new_contract: Any = None


def _detail(failure: Failure) -> ErrorDetail | None:
    if failure.success or failure.new_contract is not None:
        return None
    code, *words = (
        each if isinstance(each, str) else "" for each in (failure.error, failure.msg, failure.message)
    )
    message = next(filter(None, words), "")
    return ErrorDetail(code, message) if code or message else None


ERRORS = ErrorContract(
    detail_from(Failure, _detail),
    (
        Rule(Meaning.NO_CAPACITY, code="no_such_ask", verb=Verb.LAUNCH),
        Rule(Meaning.NO_CAPACITY, text="no_such_ask", verb=Verb.LAUNCH),
        # Prepaid (dstack and others saw the code and these words, with HTTP 400).
        Rule(Meaning.QUOTA_REACHED, code="insufficient_credit", scope=BlockScope.ACCOUNT),
        Rule(Meaning.QUOTA_REACHED, text="lacks credit", scope=BlockScope.ACCOUNT),
        Rule(Meaning.UNAUTHORIZED, code="auth_error"),
        Rule(Meaning.UNAUTHORIZED, text="invalid user key"),
        *(Rule(Meaning.NOT_FOUND, status=404, verb=verb) for verb in (Verb.TERMINATE, Verb.POWER)),
        Rule(Meaning.NOT_FOUND, code="invalid_args", text="invalid instance", verb=Verb.POWER),
    ),
    failures_with_success_status=True,
)


class Vast:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._rest = Rest(
            settings.base_url,
            sign=bearer(settings.api_key),
            errors=ERRORS,
            capabilities=CAPABILITIES,
            transport=transport,
        )
        self._image, self._disk_gib = settings.image, settings.disk_gib
        self._keys: Mapping[str, int] | None = None
        """The account's keys, as their material, with Vast's numbers of them. They are read again after a launch,
        because another process may change them, and each opens the machine."""

    async def offers(self) -> tuple[Listed, ...]:
        return await self._rest.call(
            Verb.OFFERS,
            "POST",
            "api/v0/bundles/",
            Asks,
            lambda listed: tuple(dict.fromkeys(offers(listed, self._disk_gib))),
            body=search(self._disk_gib),
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        return await whole_listing(Verb.INVENTORY, self.inventory_page)

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        query = {
            "limit": str(PAGE_SIZE),
            "order_by": '[{"col":"id","dir":"asc"}]',
            "after_token": cursor,
        }
        return await self._rest.call(
            Verb.INVENTORY, "GET", "api/v1/instances/", Instances, _page, query=query
        )

    def prepared(self, order: LaunchOrder) -> bool:
        keys = self._keys or {}
        return key_material(order.ssh_public_key) in keys and not _withdrawn(order, keys)

    async def prepare(self, order: LaunchOrder) -> None:
        """Take one step: read the account's keys, delete one that was withdrawn, or add ours. It may be repeated."""
        if self._keys is None:
            self._keys = await self._read_keys()
            return
        # A lost answer may have had its effect, so the keys are read again unless this returns.
        known, self._keys = self._keys, None
        if withdrawn := _withdrawn(order, known):
            number = known[withdrawn[0]]
            await self._rest.call(Verb.PREPARE, "DELETE", f"api/v0/ssh/{number}/", Done, _succeeded)
            self._keys = {material: each for material, each in known.items() if each != number}
            return
        material = key_material(order.ssh_public_key)
        body = {"ssh_key": material}
        made = await self._rest.call(Verb.PREPARE, "POST", "api/v0/ssh/", KeyAdded, _number_of, body=body)
        self._keys = {**known, material: made}

    async def _read_keys(self) -> Mapping[str, int]:
        def materials(keys: list[SshKey]) -> Mapping[str, int]:
            return {key_material(each.key): each.id for each in keys if each.deleted_at is None}

        try:
            return await self._rest.call(Verb.PREPARE, "GET", "api/v0/ssh/", list[SshKey], materials)
        except OrderRefused as refusal:
            if "no ssh keys" in str(refusal).lower():
                return {}
            raise

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        if not order.native_type.isdecimal():
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "the offer has no number")
        for _ in range(_PREPARE_CALLS_MAX):
            if self.prepared(order):
                break
            await self.prepare(order)
        else:
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "our SSH key could not be registered")
        path = f"api/v0/asks/{order.native_type}/"
        try:
            ref = await self._rest.call(
                Verb.LAUNCH, "PUT", path, Launched, _contract, body=self._body(order), private=order.user_data
            )
        except OrderRefused:
            self._keys = None  # Somebody may have deleted our key.
            raise
        self._keys = None
        return ref

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        if action is not PowerAction.REBOOT:
            raise error_for(Verb.POWER, Meaning.REFUSED, f"we have Vast {action} no machines")
        if not provider_ref.isdecimal():
            raise error_for(Verb.POWER, Meaning.NOT_SENT, "the instance has no number")
        path = f"api/v0/instances/reboot/{provider_ref}/"
        await self._rest.call(Verb.POWER, "PUT", path, Done, _succeeded)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        if not provider_ref.isdecimal():
            raise error_for(Verb.TERMINATE, Meaning.NOT_SENT, "the instance has no number")
        path = f"api/v0/instances/{provider_ref}/"
        await self._rest.call(Verb.TERMINATE, "DELETE", path, Done, _succeeded)

    async def close(self) -> None:
        await self._rest.close()

    def _body(self, order: LaunchOrder) -> dict[str, Any]:
        return {
            "image": self._image,
            "vm": True,
            "runtype": "ssh_direct",
            "disk": self._disk_gib,
            "label": order.launch_key,
            "onstart": order.user_data,
            "target_state": "running",
            "cancel_unavail": True,
        }


def _page(page: Instances) -> Page[Sighting]:
    found = ours(_sighting(each) for each in page.instances)
    return Page(found, page.next_token, listed=len(page.instances), total=page.total_instances)


def _sighting(instance: Instance) -> Sighting | None:
    port = _ssh_port(instance)
    status, intended = instance.actual_status or "null", instance.intended_status or "running"
    return sighting(
        instance.id,
        (instance.label,),
        status if intended == "running" else f"{status}/{intended}",
        STATES,
        # Without its port, the address leads to another machine of the same host.
        address=None if port is None else address_or_name((instance.public_ipaddr or "").strip()),
        ssh_port=port or 22,
    )


def _number_of(added: KeyAdded) -> int:
    if not added.success:
        raise UnreadableAnswer("it did not say that it succeeded")
    return added.key.id


def _withdrawn(order: LaunchOrder, keys: Mapping[str, int]) -> list[str]:
    """Those of the account's keys that must not open a machine any more."""
    return [material for material in map(key_material, order.withdrawn_ssh_keys) if material in keys]


def _ssh_port(instance: Instance) -> int | None:
    mapped = (instance.ports or {}).get("22/tcp") or ()
    ports = [int(each.port) for each in mapped if each.port.isdecimal()]
    return next((port for port in ports if 0 < port < 65_536), None)


def _contract(made: Launched) -> ProviderRef:
    if not made.success:
        raise UnreadableAnswer("a contract without success")
    return reference_of(made.new_contract)


def _succeeded(done: Done) -> None:
    if not done.success:
        raise UnreadableAnswer("it did not say that it succeeded")


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> Vast:
    return Vast(settings, transport=transport)
