from control_plane.domain.firewall import Protocol
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.ingress import Ingress
from providers.emulators.clouds.hyperstack import create_app
from providers.emulators.clouds.hyperstack_account import FLAVORS, Account, Instance
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.hyperstack import Hyperstack, Settings, connect
from providers.hyperstack_firewall import rule_for
from tests.contract.clouds import UNKNOWN_STATUS, Cloud, EmulatedCloud, Network
from tests.support.clock import Clock

SECRET = "hyperstack-key-splitplane-test-0123456789"


class EmulatedHyperstack(EmulatedCloud):
    name = "hyperstack"
    native_type = "n3-H100x8"
    native_region = "CANADA-1"
    absent_ref = ProviderRef("99999999")
    secret = SECRET
    seconds_to_run = 200.0
    seconds_to_be_gone = 30.0
    provider: Hyperstack

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        self.app = create_app(host, self.scenario, now=self.clock.now, api_key=SECRET)
        self.account: Account = self.app.state.account
        self.network = Network(self.app, self.clock, seconds_between=1.0)
        self.provider = self.connected(SECRET)

    def connected(self, key: str) -> Hyperstack:
        return connect(Settings(api_key=key, base_url="http://hyperstack.test/v1"), transport=self.network)

    def ever(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.instances.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.name == key for each in self.account.instances.standing())

    def lets_in(self, ref: ProviderRef) -> list[Ingress]:
        return sorted(
            Ingress(
                Protocol(rule["protocol"]),
                rule["port_range_min"],
                rule["port_range_max"],
                rule["remote_ip_prefix"],
            )
            for rule in self.account.instances.every[ref].security_rules
        )

    def open_by_hand(self, ref: ProviderRef, opened: Ingress) -> None:
        rule = self.account.numbered(rule_for(opened))
        self.account.instances.every[ref].security_rules.append(rule)

    async def add_foreign_machine(self) -> None:
        def box(number: int) -> Instance:
            return Instance(
                id=str(number),
                native_type=self.native_type,
                native_region=self.native_region,
                number=number,
                name="box",
                flavor=FLAVORS[self.native_type],
                environment="default-CANADA-1",
                image="Ubuntu",
                key_name="mine",
                labels=[],
                security_rules=[],
                floating_ip_wanted=True,
            )

        await self.account.launch(box, user_data="")

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.account.instances.every[ref].unknown_status = UNKNOWN_STATUS


def make() -> Cloud:
    return EmulatedHyperstack()
