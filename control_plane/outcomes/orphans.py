"""What becomes of orphans: an operator may decide that the record of its launch key takes one."""

from datetime import datetime

from control_plane.db import machines, orphans
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.ids import AccountName
from control_plane.domain.orphan import Choice, Orphan, why_not_adopted


async def adopt_orphan(
    connection: Connection,
    account: AccountName,
    orphan: Orphan,
    *,
    deadline_at: datetime,
    actor: Actor,
    now: datetime,
) -> bool:
    """Give an orphan to the record of its launch key, in place of the machine that the provider does not list.

    `deadline_at` is the time by which it has to boot. False when the record can no longer take it, the decision was
    changed, or the provider was asked to terminate the orphan: all of that is read again under locks.
    """
    key, ref = orphan.launch_key, orphan.provider_ref
    order = (await orphans.orders_of(connection, [key])).get(key)
    if order is None:
        return False
    await machines.lock(connection, [order.id])
    order = (await orphans.orders_of(connection, [key])).get(key)
    current = await orphans.still(connection, account, orphan)
    if order is None or current is None or current.choice is not Choice.ADOPT or current.asked_lately:
        return False
    if why_not_adopted(order, account, ref) is not None:
        return False
    why = f"{current.decided_by} decided that it has {ref} in place of {order.provider_ref}: {current.decided_why}"
    await machines.exchange(connection, order.id, ref, deadline_at=deadline_at, actor=actor, why=why, now=now)
    await orphans.taken(connection, account, ref)
    return True
