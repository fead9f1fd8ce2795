"""The order of a machine, made from the offer that was chosen for it."""

from control_plane.domain.ids import AccountName, MachineId, launch_key
from control_plane.domain.machine import MachineOrder, Purpose
from control_plane.domain.money import Nano
from control_plane.domain.placement import Offer
from control_plane.domain.proof import Tier


def order_of(
    offer: Offer,
    machine_id: MachineId,
    purpose: Purpose,
    proof: Tier,
    price_nano_per_hour: Nano,
    *,
    installation: str,
) -> MachineOrder:
    """What is stored of a machine before it is requested. Its offer may change or go later.

    What customers pay is fixed at `price_nano_per_hour`: a spot market that rises above it ends in an eviction instead
    of a loss.
    """
    return MachineOrder(
        id=machine_id,
        purpose=purpose,
        account=AccountName(offer.account),
        provider=offer.provider,
        region=offer.region,
        native_region=offer.native_region,
        native_type=offer.native_type,
        offer_key=offer.key,
        cost_nano_per_hour=offer.cost_nano_per_hour,
        gpu_model=offer.shape.gpu_model,
        gpu_count=offer.shape.gpu_count,
        vcpus=offer.shape.vcpus,
        memory_gib=offer.shape.memory_gib,
        proof=proof,
        launch_key=launch_key(installation, machine_id),
        stopped_cost_nano_per_hour=offer.stopped_cost_nano_per_hour,
        increment_seconds=offer.terms.increment_seconds,
        minimum_seconds=offer.terms.minimum_seconds,
        billed_while_booting=offer.terms.billed_while_booting,
        power=offer.power,
        spot=offer.spot,
        cost_nano_per_hour_max=price_nano_per_hour if offer.spot else None,
    )
