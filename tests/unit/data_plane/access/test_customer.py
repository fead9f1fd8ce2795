"""What sshd could read as something else is neither a principal, nor an authority, nor a serial."""

import pytest

from data_plane.access.customer import admit_customer
from data_plane.access.login import trust
from data_plane.access.port import StepFailed, Target
from data_plane.access.revocation import SERIALS_MAX, revoke
from data_plane.documents.inventory import Inventory
from data_plane.simulation.access import FakeAccess

TARGET = Target("10.0.0.1", 22, "ssh-ed25519 AAAA", "sp-1")
PRINCIPALS = ("", "*", "le_1\nsp-2", "le_1 sp-2", "le_1,sp-2", 'from="10.0.0.1" le_1', "LE_1", "é", "a" * 81)


async def test_what_a_machine_is_sent_is_refused_before_it_reaches_the_machine() -> None:
    access = FakeAccess(lambda _: Inventory("emulated", "1", ()))
    async with access.connect(TARGET) as session:
        for principal in PRINCIPALS:
            with pytest.raises(StepFailed, match="principal"):
                await admit_customer(session, principal)
        for authorities in ([], ["", "ssh-ed25519 AAAA"], ["ssh-ed25519 AAAA\nssh-ed25519 BBBB"]):
            with pytest.raises(StepFailed, match="authority"):
                await trust(session, authorities)
        for serials in ([0], [-1], [2**64], range(1, SERIALS_MAX + 2)):
            with pytest.raises(StepFailed, match="serials"):
                await revoke(session, serials)
    assert access.machine(TARGET.address).calls == ["connect"]
