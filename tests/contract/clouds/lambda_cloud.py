from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.emulators.clouds.lambda_account import KINDS, Account
from providers.emulators.clouds.lambda_cloud import Terms, create_app
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.lambda_cloud import LambdaCloud, Settings, connect
from tests.contract.clouds import UNKNOWN_STATUS, Cloud, EmulatedCloud, Network
from tests.support.clock import Clock

SECRET = "secret_splitplane-test_0123456789abcdef"


class EmulatedLambdaCloud(EmulatedCloud):
    """The laws test one call at a time, so requests are far enough apart for the rate limits."""

    name = "lambda_cloud"
    native_type = "gpu_8x_h100_sxm5"
    native_region = "us-south-2"
    secret = SECRET
    seconds_to_run = 200.0
    seconds_to_be_gone = 30.0
    provider: LambdaCloud

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        self.app = create_app(host, self.scenario, now=self.clock.now, terms=Terms(api_key=SECRET))
        self.account: Account = self.app.state.account
        self.network = Network(self.app, self.clock, seconds_between=12.0)
        self.provider = self.connected(SECRET)

    def connected(self, key: str) -> LambdaCloud:
        return connect(Settings(api_key=key, base_url="http://lambda.test/api/v1"), transport=self.network)

    def ever(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.instances.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.instances.standing())

    async def add_foreign_machine(self) -> None:
        kind = KINDS[self.native_type]
        await self.account.launch(
            kind, self.native_region, name="box", hostname=None, tags=[], ssh_key_names=["k"], user_data=""
        )

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.account.instances.every[ref].unknown_status = UNKNOWN_STATUS


def make() -> Cloud:
    return EmulatedLambdaCloud()
