import httpx

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.emulators.clouds.local import REGION, LocalCloud, Order, create_app
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import EmulatorTransport, FaultKind, Scenario
from providers.local import Local, Settings, connect
from tests.contract.clouds import Cloud
from tests.support.clock import Clock

SECRET = "local_splitplane-test_0123456789abcdef"


class Line(httpx.AsyncBaseTransport):
    """The network between us and the emulator, until it is cut."""

    def __init__(self, app: object) -> None:
        self._emulator = EmulatorTransport(app)
        self.cut = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut:
            raise httpx.ConnectError("no route", request=request)
        return await self._emulator.handle_async_request(request)


class EmulatedLocalCloud(Cloud):
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
        self.line = Line(self.app)
        self.provider = self.connected(SECRET)

    def connected(self, token: str) -> Local:
        return connect(Settings(token=token, url="http://local.test"), transport=self.line)

    def ever(self, key: LaunchKey) -> int:
        return self.emulated.sold[key]

    def alive(self, key: LaunchKey) -> int:
        return self.emulated.alive(key)

    async def plant_a_strangers_machine(self) -> None:
        await self.emulated.buy(Order(name="box", type=self.native_type, region=REGION))

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
        self.emulated.odd_words[ref] = "hibernating"

    def never_boot(self) -> None:
        self.scenario.add("launch", FaultKind.NEVER_BOOTS)

    def revoke_the_key(self) -> None:
        self.provider = self.connected("local_revoked-token_0123456789")

    def cut_the_line(self) -> None:
        self.line.cut = True


def make() -> Cloud:
    return EmulatedLocalCloud()
