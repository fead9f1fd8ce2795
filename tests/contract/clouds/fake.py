from datetime import datetime

from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.ingress import KEPT, Ingress
from control_plane.domain.planned_work import WorkKind
from providers.base import LaunchOrder, ListedOffer, Needed
from providers.fake import FakeProvider, Fault, Settings
from providers.fake_offers import DEFAULT_OFFERS, a_spot_offer
from providers.faults import VERBS
from tests.contract.clouds import Cloud, CloudWithChildren
from tests.support.clock import Clock


class FakeCloud(CloudWithChildren):
    name = "fake"
    may_sell_out_later = True
    verb_of_planned_work = "planned_work"
    native_type = "h100-sxm-80gb.8"
    native_region = "eu-central-1"
    seconds_to_run = 30.0
    seconds_to_be_gone = 0.0
    provider: FakeProvider

    def __init__(self) -> None:
        self.clock = Clock()
        settings = Settings(boot_seconds=30.0, makes_children=True)
        place = (self.native_type, self.native_region)
        spot = [
            a_spot_offer(each, usd_per_gpu_hour="0.70") for each in DEFAULT_OFFERS if _place(each) == place
        ]
        self.provider = FakeProvider(now=self.clock.now, settings=settings, listing=(*DEFAULT_OFFERS, *spot))

    def ever(self, key: LaunchKey) -> int:
        return self.provider.ever(key)

    def alive(self, key: LaunchKey) -> int:
        return len(self.provider.alive(key))

    def boots(self, ref: ProviderRef) -> int:
        return self.provider.machines[ref].boots

    def is_spot(self, key: LaunchKey) -> bool:
        (machine,) = self.provider.alive(key)
        return machine.order.spot

    def announce_eviction(self, ref: ProviderRef) -> None:
        self.provider.announce_eviction(ref)

    def withdraw_eviction(self, ref: ProviderRef) -> None:
        self.provider.withdraw_eviction(ref)

    async def evict(self, ref: ProviderRef) -> None:
        self.provider.evict(ref)

    def plan_work(self, ref: ProviderRef, event: str, at: datetime) -> None:
        self.provider.plan_work(ref, at, event=event, kind=WorkKind.STOP)

    def call_off_work(self, ref: ProviderRef, event: str) -> None:
        assert self.provider.works[event].provider_ref == ref
        self.provider.call_off_work(event)

    def sell_out_spot(self) -> None:
        self.provider.stock[f"{self.native_type}:spot", self.native_region] = 0

    def lets_in(self, ref: ProviderRef) -> list[Ingress]:
        return sorted(self.provider.machines[ref].lets_in | KEPT)

    def open_by_hand(self, ref: ProviderRef, opened: Ingress) -> None:
        self.provider.machines[ref].lets_in |= {opened}

    async def add_foreign_machine(self) -> None:
        self.provider.plant(
            LaunchOrder(LaunchKey("research-box"), self.native_type, self.native_region, "", "")
        )

    async def add_foreign_child(self) -> None:
        self.provider.plant_child(LaunchKey("research-box"), "startup_script", Needed.UNTIL_BOOT)

    def sell_out_later(self) -> None:
        self.provider.faults.script("launch", Fault.REFUSED_LATER)

    def lose_the_answer(self, verb: str) -> None:
        self.provider.faults.script(verb, Fault.LOST_AFTER_EFFECT)

    def fail_after_the_effect(self, verb: str) -> None:
        self.provider.faults.script(verb, Fault.LOST_AFTER_EFFECT)

    def sell_out(self) -> None:
        self.provider.stock[self.native_type, self.native_region] = 0

    def refuse_though_listed(self) -> None:
        self.provider.faults.script("launch", Fault.NO_CAPACITY)

    def throttle(self, verb: str) -> None:
        self.provider.faults.script(verb, Fault.THROTTLED)

    def break_the_listing(self) -> None:
        self.provider.faults.script("inventory", Fault.LISTING_FAILS)

    def refuse_terminate(self) -> None:
        self.provider.faults.script("terminate", Fault.NOT_YET)

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.provider.faults.script("inventory", Fault.UNKNOWN_STATUSES)

    def never_boot(self) -> None:
        self.provider.faults.script("launch", Fault.NEVER_BOOTS)

    def revoke_the_key(self) -> None:
        self._always(Fault.UNAUTHORIZED)

    def cut_the_network(self) -> None:
        self._always(Fault.UNAVAILABLE)

    def _always(self, event: Fault) -> None:
        for verb in VERBS:
            self.provider.faults.always(verb, event)


def _place(offer: ListedOffer) -> tuple[str, str]:
    return offer.native_type, offer.native_region


def make() -> Cloud:
    return FakeCloud()
