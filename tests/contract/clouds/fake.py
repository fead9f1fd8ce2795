from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.base import LaunchOrder
from providers.fake import Event, FakeProvider, Settings
from tests.contract.clouds import Cloud
from tests.support.clock import Clock


class FakeCloud(Cloud):
    name = "fake"
    native_type = "h100-sxm-80gb.8"
    native_region = "eu-central-1"
    seconds_to_run = 30.0
    seconds_to_be_gone = 0.0
    provider: FakeProvider

    def __init__(self) -> None:
        self.clock = Clock()
        self.provider = FakeProvider(now=self.clock.now, settings=Settings(boot_seconds=30.0))

    def ever(self, key: LaunchKey) -> int:
        return self.provider.ever(key)

    def alive(self, key: LaunchKey) -> int:
        return len(self.provider.alive(key))

    async def plant_a_strangers_machine(self) -> None:
        self.provider.plant(
            LaunchOrder(LaunchKey("research-box"), self.native_type, self.native_region, "", "")
        )

    def lose_the_answer(self, verb: str) -> None:
        self.provider.weather.script(verb, Event.LOST_AFTER_EFFECT)

    def spoil_the_answer(self, verb: str) -> None:
        self.provider.weather.script(verb, Event.LOST_AFTER_EFFECT)

    def sell_out(self) -> None:
        self.provider.stock[self.native_type, self.native_region] = 0

    def refuse_though_listed(self) -> None:
        self.provider.weather.script("launch", Event.NO_CAPACITY)

    def throttle(self, verb: str) -> None:
        self.provider.weather.script(verb, Event.THROTTLED)

    def break_the_list(self) -> None:
        self.provider.weather.script("inventory", Event.CUT_LIST)

    def refuse_terminate(self) -> None:
        self.provider.weather.script("terminate", Event.NOT_YET)

    def speak_an_odd_word(self, ref: ProviderRef) -> None:
        self.provider.weather.script("inventory", Event.ODD_WORDS)

    def never_boot(self) -> None:
        self.provider.weather.script("launch", Event.NEVER_BOOTS)

    def revoke_the_key(self) -> None:
        self._always(Event.UNAUTHORIZED)

    def cut_the_line(self) -> None:
        self._always(Event.UNAVAILABLE)

    def _always(self, event: Event) -> None:
        for verb in ("offers", "launch", "inventory", "terminate"):
            self.provider.weather.always(verb, event)


def make() -> Cloud:
    return FakeCloud()
