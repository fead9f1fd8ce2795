"""The device flow (RFC 8628): terminals that wait until a person confirms them in a browser."""

import secrets as randomness
from dataclasses import dataclass, field

from control_plane.db import devices, organizations, users
from control_plane.domain.audit import Origin
from control_plane.domain.device_flow import (
    ALPHABET,
    CODE_LENGTH,
    FIRST_INTERVAL_SECONDS,
    LASTS,
    SLOWED_BY_SECONDS,
    Answer,
    Device,
    DeviceState,
    poll,
)
from control_plane.domain.id_token import Person
from control_plane.domain.ids import OrganizationId, UserId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.subject import MAY_ACT
from control_plane.services import people, sessions
from control_plane.services.sessions import Tokens, digest, random_secret
from control_plane.services.signing_in import SigningIn
from control_plane.world import World

__all__ = ["Device"]  # For controllers, which must not import the layer below.

DEVICE_PREFIX = "spd_"
WAITING_PER_ADDRESS_MAX = 50
TRIES_MAX = 5
"""How often a user code is drawn that another terminal has."""
_UNKNOWN = Refused(
    RefusalCode.DEVICE_NOT_FOUND,
    "No terminal waits with this code. Codes are valid for ten minutes: run `splitplane login` again.",
)


@dataclass(frozen=True, slots=True)
class Started:
    """A terminal that waits now, with its two codes."""

    device: Device
    device_code: str = field(repr=False)
    user_code: str = field(repr=False)


async def start(world: World, *, client: str, address: str) -> Started | Refused:
    """Let a terminal wait."""
    now = world.now()
    async with world.db.transaction() as connection:
        if await devices.waiting_at(connection, address, now=now) >= WAITING_PER_ADDRESS_MAX:
            why = f"{WAITING_PER_ADDRESS_MAX} terminals of your address wait for a sign-in already."
            return Refused(RefusalCode.DEVICES_TOO_MANY, why)
        for _ in range(TRIES_MAX):
            device = Device(
                world.new_id(),
                DeviceState.PENDING,
                client,
                address,
                now,
                now + LASTS,
                FIRST_INTERVAL_SECONDS,
                None,
            )
            device_code = DEVICE_PREFIX + random_secret()
            user_code = "".join(randomness.choice(ALPHABET) for _ in range(CODE_LENGTH))
            if await devices.insert(
                connection, device, device_sha256=digest(device_code), user_sha256=digest(user_code)
            ):
                return Started(device, device_code, user_code)
    raise LookupError("no user code was free")  # pragma: no cover - 25 thousand million codes


async def waiting(world: World, user_code: str) -> Device | Refused:
    """The terminal that shows this code."""
    async with world.db.reading() as connection:
        found = await devices.with_user_code(connection, digest(user_code))
    return found if found is not None and found.waits(world.now()) else _UNKNOWN


async def confirm(
    world: World, person: Person, user_code: str, organization_id: OrganizationId
) -> Device | Refused:
    """Sign a terminal in as the person's user of an organization."""
    device = await waiting(world, user_code)
    if isinstance(device, Refused):
        return device
    user = await people.become(world, person, organization_id)
    if isinstance(user, Refused):
        return user
    to = (user.organization_id, user.user_id)
    async with world.db.transaction() as connection:
        return device if await devices.move(connection, device, DeviceState.APPROVED, to=to) else _UNKNOWN


async def deny(world: World, user_code: str) -> Device | Refused:
    """Refuse a terminal that the person does not know."""
    device = await waiting(world, user_code)
    if isinstance(device, Refused):
        return device
    async with world.db.transaction() as connection:
        return device if await devices.move(connection, device, DeviceState.DENIED) else _UNKNOWN


async def ask(
    world: World, signing_in: SigningIn, device_code: str, *, origin: Origin
) -> Tokens | Answer | None:
    """What a terminal is told that asks for its tokens; None when the code is unknown. Raises KeyManagerError."""
    now = world.now()
    async with world.db.transaction() as connection:
        device = await devices.lock(connection, digest(device_code))
        if device is None:
            return None
        answer = poll(device, now)
        slowed = SLOWED_BY_SECONDS if answer is Answer.SLOW_DOWN else 0
        await devices.polled(
            connection, device.id, now=now, interval_seconds=device.interval_seconds + slowed
        )
    if answer is not Answer.TOKENS:
        return answer
    # A key manager that is away must not use up the code.
    await signing_in.keys.signer()
    return await _redeemed(world, signing_in, device, origin)


async def _redeemed(world: World, signing_in: SigningIn, device: Device, origin: Origin) -> Tokens | Answer:
    """Begin the session of a terminal that is approved. One transaction: a crash leaves the code as good as it was."""
    if device.approved_organization is None or device.approved_user is None:
        raise LookupError(f"the device {device.id} is approved for nobody")
    organization_id, user_id = OrganizationId(device.approved_organization), UserId(device.approved_user)
    async with world.db.transaction(organization_id) as connection:
        # Since the approval the organization may have been closed, or the user suspended.
        if not await organizations.hold_open(connection, organization_id):
            return Answer.DENIED
        user = await users.get(connection, organization_id, user_id, lock=True)
        if user is None or user.state not in MAY_ACT:
            return Answer.DENIED
        # Once: another question finds it redeemed.
        if not await devices.move(connection, device, DeviceState.REDEEMED):
            return Answer.EXPIRED
        session_id, refresh = await sessions.begin(
            connection,
            world,
            organization_id,
            user_id,
            client=device.client,
            address=device.address,
            origin=origin,
        )
    return await sessions.tokens(
        world, signing_in, organization_id, user_id, session_id=session_id, refresh=refresh
    )
