from base64 import b64encode

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.base import Verb
from providers.emulators.clouds.shadeform import create_app
from providers.emulators.clouds.shadeform_account import KINDS, OS_OPTIONS, Account, Instance
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.shadeform import Settings, Shadeform, connect
from tests.contract.clouds import UNKNOWN_STATUS, Cloud, EmulatedCloud, Network
from tests.support.clock import Clock

SECRET = "shadeform-key-splitplane-test-0123456789"


class EmulatedShadeform(EmulatedCloud):
    name = "shadeform"
    native_type = "hyperstack/A100_80Gx8"
    native_region = "canada-1"
    absent_ref = ProviderRef("00000000-0000-0000-0000-00000000ffff")
    secret = SECRET
    seconds_to_run = 200.0
    seconds_to_be_gone = 30.0
    empty_answers = frozenset({(Verb.TERMINATE, 200), (Verb.POWER, 200)})
    provider: Shadeform

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        self.app = create_app(host, self.scenario, now=self.clock.now, api_key=SECRET)
        self.account: Account = self.app.state.account
        self.network = Network(self.app, self.clock, seconds_between=1.0)
        self.provider = self.connected(SECRET)

    def connected(self, key: str) -> Shadeform:
        return connect(Settings(api_key=key, base_url="http://shadeform.test/v1"), transport=self.network)

    def quotable(self) -> tuple[str, ...]:
        """The script travels in base64."""
        return (SECRET, b64encode(self.order().user_data.encode()).decode())

    def ever(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.instances.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.instances.standing())

    async def add_foreign_machine(self) -> None:
        def box(number: str) -> Instance:
            return Instance(
                id=number,
                native_type=self.native_type,
                native_region=self.native_region,
                name="box",
                kind=KINDS[self.native_type],
                os=OS_OPTIONS[0],
                tags=["theirs"],
                launch_configuration=None,
            )

        await self.account.launch(box, user_data="")

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.account.instances.every[ref].unknown_status = UNKNOWN_STATUS


def make() -> Cloud:
    return EmulatedShadeform()
