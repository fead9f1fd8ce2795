import httpx

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.emulators.clouds.lambda_account import KINDS, Account
from providers.emulators.clouds.lambda_cloud import Terms, create_app
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import EmulatorTransport, FaultKind, Scenario
from providers.lambda_cloud import LambdaCloud, Settings, connect
from tests.contract.clouds import Cloud
from tests.support.clock import Clock

SECRET = "secret_splitplane-test_0123456789abcdef"


class Line(httpx.AsyncBaseTransport):
    """The network between us and the emulator: counts requests, and time passes between them.

    The laws are about one call at a time, so the line is slow enough for the provider's rate
    limit; the guard's tests switch that off and keep the limit themselves.
    """

    def __init__(self, app: object, clock: Clock) -> None:
        self._emulator = EmulatorTransport(app)
        self._clock = clock
        self.seconds_between = 12.0
        self.cut = False
        self.requests: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut:
            raise httpx.ConnectError("no route", request=request)
        self._clock.advance(self.seconds_between)
        self.requests.append((request.method, request.url.path))
        return await self._emulator.handle_async_request(request)


class EmulatedLambdaCloud(Cloud):
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
        app = create_app(host, self.scenario, now=self.clock.now, terms=Terms(api_key=SECRET))
        self.app = app
        self.account: Account = app.state.account
        self.line = Line(app, self.clock)
        self.provider = self.connected(SECRET)

    def connected(self, api_key: str) -> LambdaCloud:
        return connect(Settings(api_key=api_key, base_url="http://lambda.test/api/v1"), transport=self.line)

    def ever(self, key: LaunchKey) -> int:
        return self.account.ever(key)

    def alive(self, key: LaunchKey) -> int:
        return len(self.account.alive(key))

    async def plant_a_strangers_machine(self) -> None:
        kind = KINDS[self.native_type]
        await self.account.launch(
            kind, self.native_region, name="box", hostname=None, tags=[], ssh_key_names=["k"], user_data=""
        )

    def lose_the_answer(self, verb: str) -> None:
        self.scenario.add(verb, FaultKind.CUT_AFTER)

    def spoil_the_answer(self, verb: str) -> None:
        self.scenario.add(verb, FaultKind.ERROR_AFTER)

    def sell_out(self) -> None:
        self.scenario.stock[self.native_type, self.native_region] = 0

    def refuse_though_listed(self) -> None:
        self.scenario.add("launch", FaultKind.NO_CAPACITY)

    def throttle(self, verb: str) -> None:
        self.scenario.add(verb, FaultKind.THROTTLE)

    def break_the_list(self) -> None:
        self.scenario.add("inventory", FaultKind.PARTIAL_LIST)

    def refuse_terminate(self) -> None:
        self.scenario.add("terminate", FaultKind.REFUSE_TERMINATE)

    def speak_an_odd_word(self, ref: ProviderRef) -> None:
        self.account.instances[ref].odd_status = "hibernating"

    def never_boot(self) -> None:
        self.scenario.add("launch", FaultKind.NEVER_BOOTS)

    def revoke_the_key(self) -> None:
        self.provider = self.connected("secret_revoked-key_0123456789")

    def cut_the_line(self) -> None:
        self.line.cut = True


def make() -> Cloud:
    return EmulatedLambdaCloud()
