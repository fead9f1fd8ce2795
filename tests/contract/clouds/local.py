import asyncio

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.emulators.clouds.local import (
    REGION,
    EvictionOrder,
    EvictionState,
    LocalCloud,
    Order,
    create_app,
    stock_name,
)
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.local import Local, Settings, connect
from tests.contract.clouds import UNKNOWN_STATUS, Cloud, EmulatedCloud, Network
from tests.support.clock import Clock

SECRET = "local_splitplane-test_0123456789abcdef"


class EmulatedLocalCloud(EmulatedCloud):
    name = "local"
    native_type = "gpu-h100x8"
    native_region = REGION
    secret = SECRET
    seconds_to_run = 3.0
    seconds_to_be_gone = 0.0
    provider: Local

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=2.0)
        self.app = create_app(host, self.scenario, now=self.clock.now, token=SECRET)
        self.emulated: LocalCloud = self.app.state.cloud
        self.network = Network(self.app, self.clock)
        self.provider = self.connected(SECRET)

    def connected(self, key: str) -> Local:
        return connect(Settings(token=key, url="http://local.test"), transport=self.network)

    def ever(self, key: LaunchKey) -> int:
        return self.emulated.sold[key]

    def alive(self, key: LaunchKey) -> int:
        return self.emulated.alive(key)

    async def add_foreign_machine(self) -> None:
        await self.emulated.buy(Order(name="box", type=self.native_type, region=REGION))

    def is_spot(self, key: LaunchKey) -> bool:
        (machine,) = (each for each in self.emulated.everything() if each["name"] == key)
        return bool(machine["spot"])

    def announce_eviction(self, ref: ProviderRef) -> None:
        self.emulated.evict(EvictionOrder(ref, EvictionState.ANNOUNCED))

    def withdraw_eviction(self, ref: ProviderRef) -> None:
        self.emulated.evict(EvictionOrder(ref, EvictionState.WITHDRAWN))

    async def evict(self, ref: ProviderRef) -> None:
        self.emulated.evict(EvictionOrder(ref))
        await asyncio.sleep(0)  # The cloud ends it in a task of its own, which waits for nothing here.

    def sell_out_spot(self) -> None:
        self.scenario.stock[stock_name(self.native_type, spot=True), REGION] = 0

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.emulated.unknown_statuses[ref] = UNKNOWN_STATUS


def make() -> Cloud:
    return EmulatedLocalCloud()
