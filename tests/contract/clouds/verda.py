import httpx

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.base import Verb
from providers.emulators.clouds.verda import CLIENT_ID, create_app
from providers.emulators.clouds.verda_account import KINDS, Account, Instance, Script, new_id
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import EmulatorTransport, Scenario
from providers.verda import Settings, Verda
from tests.contract.clouds import UNKNOWN_STATUS, Cloud, CloudWithChildren, EmulatedCloud, Network
from tests.support.clock import Clock

SECRET = "verda-client-secret-splitplane-test-0123456789"
TOKENS = "/v1/oauth2/token"


class TokensApart(Network):
    """A request for a token is no call of the port: it is not counted, and no other answer is given to it."""

    def __init__(self, app: object, clock: Clock) -> None:
        super().__init__(app, clock, seconds_between=1.0)
        self.tokens = EmulatorTransport(app)
        self.fetched = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut or request.url.path != TOKENS:
            return await super().handle_async_request(request)
        self.fetched += 1
        return await self.tokens.handle_async_request(request)


class EmulatedVerda(EmulatedCloud, CloudWithChildren):
    name = "verda"
    native_type = "8H100.80S.176V"
    native_region = "FIN-03"
    absent_ref = ProviderRef("1d2f3a4b-0000-4000-8000-000000000000")
    secret = SECRET
    may_sell_out_later = True
    ends_while_creating = False
    lists_are_plain = True
    empty_answers = frozenset({(Verb.POWER, 204)})
    seconds_to_run = 200.0
    seconds_to_be_gone = 30.0
    provider: Verda
    network: TokensApart

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        self.app = create_app(host, self.scenario, now=self.clock.now, api_key=SECRET)
        self.account: Account = self.app.state.account
        self.network = TokensApart(self.app, self.clock)
        self.provider = self.connected(SECRET)

    def quotable(self) -> tuple[str, ...]:
        """The client's secret travels with requests for tokens only, and user data with that for a script."""
        return tuple(self.account.tokens)

    def connected(self, key: str) -> Verda:
        settings = Settings(client_id=CLIENT_ID, client_secret=key, base_url="http://verda.test/v1")
        return Verda(settings, now=self.clock.now, transport=self.network)

    def ever(self, key: LaunchKey) -> int:
        return sum(each.hostname == key for each in self.account.instances.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.hostname == key for each in self.account.instances.standing())

    async def add_foreign_machine(self) -> None:
        volume = self.account.add_volume("box", 50, [], self.native_region)
        box = Instance(
            id=new_id(),
            native_type=self.native_type,
            native_region=self.native_region,
            kind=KINDS[self.native_type],
            hostname="box",
            description="",
            image="ubuntu-24.04",
            tags=[],
            ssh_key_ids=[],
            startup_script_id=None,
            os_volume_id=volume.id,
        )
        await self.account.launch(box, user_data="")

    async def add_foreign_child(self) -> None:
        script = Script(new_id(), "my script", "#!/bin/sh", self.clock.now())
        self.account.scripts[script.id] = script
        self.account.add_volume("my volume", 50, [], self.native_region)

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.account.instances.every[ref].unknown_status = UNKNOWN_STATUS


def make() -> Cloud:
    return EmulatedVerda()
