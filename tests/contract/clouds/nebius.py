from datetime import datetime
from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from control_plane.domain.ids import LaunchKey, ProviderRef
from providers.emulators.clouds.nebius import create_server, public_pem
from providers.emulators.clouds.nebius_account import (
    PRESETS,
    PROJECT_ID,
    PUBLIC_KEY_ID,
    REGION,
    SERVICE_ACCOUNT_ID,
    Account,
)
from providers.emulators.grpc_server import GrpcServer
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.nebius import Nebius, Settings, connect
from providers.nebius_api import messages_pb2 as pb
from providers.rpc import Metadata, NotConnectedError
from tests.contract.clouds import Cloud, ScriptedCloud
from tests.support.clock import Clock

UNKNOWN_STATE = 42


@cache
def a_private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@cache
def a_private_pem() -> str:
    return a_private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class Wire:
    """The network between the adapter and the emulator in this process: it keeps every call, and can be cut."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self.cut = False
        self.calls: list[tuple[str, str, bytes, Metadata, bytes | None]] = []
        """Host, path, request, metadata and answer of every call; no answer for one that failed."""

    @property
    def paths(self) -> list[str]:
        return [path for _, path, *_ in self.calls]

    async def call(self, host: str, path: str, request: bytes, metadata: Metadata) -> bytes:
        if self.cut:
            raise NotConnectedError("no route")
        self.calls.append((host, path, request, metadata, None))
        answer = await self._server.call(host, path, request, metadata)
        self.calls[-1] = (host, path, request, metadata, answer)
        return answer

    async def close(self) -> None: ...


class EmulatedNebius(ScriptedCloud):
    name = "nebius"
    native_type = "gpu-h100-sxm/8gpu-128vcpu-1600gb"
    native_region = REGION
    absent_ref = ProviderRef("computeinstance-e00absent")
    may_sell_out_later = True
    seconds_to_run = 200.0
    seconds_to_be_gone = 30.0
    provider: Nebius

    def __init__(self) -> None:
        self.clock = Clock()
        self.scenario = Scenario(sleep=self.clock.sleep)
        self.host = SimulatedHost(self.clock.now, boot_seconds=180.0)
        key = public_pem(a_private_key())
        self.server = create_server(self.host, self.scenario, now=self.clock.now, public_key=key)
        self.account: Account = self.server.cloud.account
        self.wire = Wire(self.server)
        self.secret = a_private_pem().splitlines()[7]
        self.provider = self.connected(PUBLIC_KEY_ID)

    def connected(self, key: str) -> Nebius:
        """`key` is the id of the service account's key here; the law suite's revoked one is unknown to the account."""
        return connect(self.settings(public_key_id=key), transport=self.wire, now=self.clock.now)

    @staticmethod
    @cache
    def settings(**other: str) -> Settings:
        """Cached, since checking a key takes a tenth of a second."""
        given = {
            "project_id": PROJECT_ID,
            "service_account_id": SERVICE_ACCOUNT_ID,
            "public_key_id": PUBLIC_KEY_ID,
            "private_key": a_private_pem(),
        }
        return Settings(**(given | other))

    def ever(self, key: LaunchKey) -> int:
        return sum(each.metadata.name == key for each in self.account.instances.every.values())

    def alive(self, key: LaunchKey) -> int:
        return sum(each.metadata.name == key for each in self.account.instances.standing())

    def boots(self, ref: ProviderRef) -> int:
        return self.host.boots.get(ref, 1)

    def plan_work(self, ref: ProviderRef, event: str, at: datetime) -> None:
        self.account.plan_maintenance(ref, event, at)

    def call_off_work(self, ref: ProviderRef, event: str) -> None:
        assert self.account.named_events[ref] == event
        self.account.end_maintenance(event)

    async def add_foreign_machine(self) -> None:
        request = pb.CreateInstanceRequest(
            metadata=pb.ResourceMetadata(parent_id=PROJECT_ID, name="box"), spec=pb.InstanceSpec()
        )
        await self.account.launch(request, PRESETS[self.native_type])

    def show_unknown_status(self, ref: ProviderRef) -> None:
        self.account.instances.every[ref].unknown_status = str(UNKNOWN_STATE)

    def cut_the_network(self) -> None:
        self.wire.cut = True


def make() -> Cloud:
    return EmulatedNebius()
