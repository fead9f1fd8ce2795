import base64

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.crusoe import Crusoe, Settings
from providers.emulators.clouds.crusoe import KEY_ID, PROJECT, create_app
from providers.emulators.clouds.crusoe_account import KINDS, Account
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from tests.contract.clouds import UNKNOWN_STATUS, USER_DATA_SECRET, Cloud, EmulatedCloud, Network
from tests.support.clock import Clock

SECRET = base64.urlsafe_b64encode(b"crusoe secret of the splitplane tests").decode().rstrip("=")


class EmulatedCrusoe(EmulatedCloud):
    name = "crusoe"
    native_type = "h100-80gb-sxm-ib.8x"
    native_region = "us-east1-a"
    absent_ref = ProviderRef("1d2f3a4b-0000-4000-8000-000000000000")
    secret = SECRET
    may_sell_out_later = True
    seconds_to_run = 200.0
    seconds_to_be_gone = 30.0
    provider: Crusoe

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        self.app = create_app(host, self.scenario, now=self.clock.now, api_key=SECRET)
        self.account: Account = self.app.state.account
        self.network = Network(self.app, self.clock, seconds_between=1.0)
        self.provider = self.connected(SECRET)

    def quotable(self) -> tuple[str, ...]:
        """The key itself never travels."""
        return (USER_DATA_SECRET,)

    def connected(self, key: str) -> Crusoe:
        settings = Settings(KEY_ID, key, PROJECT, base_url="http://crusoe.test/v1")
        return Crusoe(settings, now=self.clock.now, transport=self.network)

    def ever(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.instances.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.existing())

    async def add_foreign_machine(self) -> None:
        await self.account.launch(KINDS[self.native_type], self.native_region, name="box", user_data="")

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.account.instances.every[ref].unknown_status = UNKNOWN_STATUS


def make() -> Cloud:
    return EmulatedCrusoe()
