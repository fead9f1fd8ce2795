from decimal import Decimal

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.base import LaunchOrder
from providers.emulators.clouds.vast import create_app
from providers.emulators.clouds.vast_account import ASKS, Account, Instance
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.vast import Settings, Vast, connect
from tests.contract.clouds import UNKNOWN_STATUS, Cloud, EmulatedCloud, Network, a_key
from tests.support.clock import Clock

SECRET = "vast-key-splitplane-test-0123456789abcdef"
FIRST_ASK = 4_100_008


class EmulatedVast(EmulatedCloud):
    """Each ask is sold once, so every order is for an ask of its own."""

    name = "vast"
    lists_types = False  # An order is for an ask, which is used once.
    native_type = str(FIRST_ASK)
    native_region = "SE"
    absent_ref = ProviderRef("999999999")
    secret = SECRET
    seconds_to_run = 200.0
    lists_what_is_sold_out = False
    harmless = a_key(2)
    provider: Vast

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        self.app = create_app(host, self.scenario, now=self.clock.now, api_key=SECRET)
        self.account: Account = self.app.state.account
        self.account.ssh_port = 41_022
        self.network = Network(self.app, self.clock, seconds_between=6.0)
        self.provider = self.connected(SECRET)

    def connected(self, key: str) -> Vast:
        return connect(Settings(api_key=key, base_url="http://vast.test"), transport=self.network)

    def order(self, number: int = 1, *, user_data: str | None = None) -> LaunchOrder:
        order = super().order(number, user_data=user_data)
        if order.native_type != str(FIRST_ASK):
            return order
        return LaunchOrder(
            launch_key=order.launch_key,
            native_type=str(FIRST_ASK + (number - 1) * 10),
            native_region=order.native_region,
            user_data=order.user_data,
            ssh_public_key=order.ssh_public_key,
        )

    def ever(self, key: LaunchKey) -> int:
        return sum(each.label == key for each in self.account.instances.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.label == key for each in self.account.instances.standing())

    async def add_foreign_machine(self) -> None:
        ask = ASKS[FIRST_ASK + 100]
        box = Instance(
            id=str(next(self.account.numbers)),
            native_type=str(ask.id),
            native_region="SE",
            ask=ask,
            disk=Decimal(10),
            label="box",
            onstart=None,
            image="pytorch",
        )
        await self.account.launch(box)

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.account.instances.every[ref].unknown_status = UNKNOWN_STATUS


def make() -> Cloud:
    return EmulatedVast()
