"""The examples of docs/adding-a-provider.md are programs: they run, and keep the law that the page explains."""

import ast
import inspect
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.request import CapacityRequest
from providers.base import (
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    ListedOffer,
    ListedState,
    MachineNotFound,
    NoCapacity,
    NotYet,
    OutcomeUnknown,
    Provider,
    ProviderError,
    QuotaReached,
    Throttled,
    Unavailable,
    Verb,
)
from providers.registry import REQUIRED_NAMES
from tests.arch.test_adapters import around_the_law
from tests.contract import test_adapter_laws as adapter_laws
from tests.contract.clouds import EmulatedCloud, Network, a_key
from tests.support.clock import Clock

PAGE = Path("docs/adding-a-provider.md").read_text()
ADAPTER, SIGNATURE, OTHER_CLIENT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ORDER = LaunchOrder(
    a_key(), "h100.8", "FIN-01", "#cloud-config\n# hunter2-bootstrap-token", "ssh-ed25519 AAAA"
)


EMPTY_DELETE = ADAPTER.replace("Machine, ignored)", "Machine, ignored, empty_status=204)")
"""The same adapter for a provider whose delete answers 204 without a body."""


class PageCloud(EmulatedCloud):
    """The provider of the page, as far as the laws about strange answers need it: it accepts every launch."""

    name = "example"
    native_type = "h100.8"
    native_region = "FIN-01"
    secret = "planted-key-0123456789"

    def __init__(self, text: str) -> None:
        self._module = run(text)
        self.clock = Clock()
        self.network = Network(self._accept, self.clock)
        self.provider = self.connected(self.secret or "")

    def connected(self, key: str) -> Provider:
        provider: Provider = self._module.connect(self._module.Settings(key), transport=self.network)
        return provider

    async def _accept(self, _: object, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 201, "headers": []})
        body = json.dumps({"id": 7, "status": "creating"}).encode()
        await send({"type": "http.response.body", "body": body})

    def ever(self, key: LaunchKey) -> int:
        raise NotImplementedError

    def alive(self, key: LaunchKey) -> int:
        raise NotImplementedError

    async def add_foreign_machine(self) -> None:
        raise NotImplementedError

    def show_unknown_status(self, ref: ProviderRef) -> None:
        raise NotImplementedError


def run(text: str, **names: Any) -> ModuleType:
    module = ModuleType("example")
    vars(module).update(names)
    exec(compile(text, "docs/adding-a-provider.md", "exec"), vars(module))
    return module


def example(status: int, **content: Any) -> Provider:
    module = run(ADAPTER)
    transport = httpx.MockTransport(lambda _: httpx.Response(status, **content))
    provider: Provider = module.connect(module.Settings("planted-key"), transport=transport)
    return provider


def test_the_files_that_the_page_names_exist_and_the_example_has_what_the_registry_needs() -> None:
    named = set(re.findall(r"`((?:providers|tests)/[\w./]+\.(?:py|txt))`", PAGE))
    assert len(named) > 10
    assert not {path for path in named if "NAME" not in path and not Path(path).exists()}
    assert set(REQUIRED_NAMES) <= vars(run(ADAPTER)).keys()


def test_no_example_goes_around_the_error_law() -> None:
    for text in (ADAPTER, SIGNATURE, OTHER_CLIENT):
        assert list(around_the_law(ast.parse(text))) == []


@pytest.mark.parametrize("text", [ADAPTER, SIGNATURE], ids=["adapter", "signature"])
def test_an_example_that_is_copied_into_a_file_is_formatted_and_linted_as_ours_are(text: str) -> None:
    for check in (("check", "--quiet"), ("format", "--diff", "--quiet")):
        command = [sys.executable, "-m", "ruff", *check, "--stdin-filename", "providers/example.py", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("empty", [False, True], ids=["a body", "no body"])
async def test_the_example_keeps_every_law_about_answers_that_no_emulator_sends(*, empty: bool) -> None:
    assert EMPTY_DELETE != ADAPTER
    laws = [
        law for name, law in vars(adapter_laws).items() if name.startswith("test_") and takes_a_cloud(law)
    ]
    assert len(laws) >= 5
    for law in laws:
        cloud = PageCloud(EMPTY_DELETE if empty else ADAPTER)
        if empty:
            cloud.empty_answers = frozenset({(Verb.TERMINATE, 204)})
        await law(cloud)
        await cloud.provider.close()


def takes_a_cloud(law: Any) -> bool:
    return list(inspect.signature(law).parameters) == ["cloud"]


async def test_the_example_reads_offers_and_machines() -> None:
    kind = {
        "name": "h100.8",
        "gpu": "H100_80GB_SXM",
        "gpus": 8,
        "vcpus": 192,
        "memory_gib": 1_600,
        "disk_gib": 8_000,
        "usd_per_gpu_hour": 2.345,
        "regions": ["FIN-01"],
    }
    offer, left_out = await example(200, json={"types": [kind, kind | {"gpu": "V100"}]}).offers()
    assert left_out == LeftOut(LeftOutFor.UNKNOWN_GPU, "V100")
    assert isinstance(offer, ListedOffer)
    assert (offer.cost_nano_per_hour, offer.region, offer.available) == (18_760_000_000, "eu-north-1", True)
    assert CapacityRequest("h100-sxm.8x", regions=("eu",)).allows_region(offer.region)
    ours = {"id": 7, "status": "running", "label": a_key(), "ip": "192.0.2.7"}
    listed = {"items": [ours, {"id": 8, "status": "?"}], "total": 2, "next_token": None}
    (machine,) = await example(200, json=listed).inventory()
    assert (machine.provider_ref, machine.state) == ("7", ListedState.RUNNING)
    with pytest.raises(Unavailable):
        await example(200, json=listed | {"total": 3}).inventory()
    assert await example(201, json=ours).launch(ORDER) == "7"
    await example(200, json=ours | {"status": "deleting"}).terminate(ProviderRef("7"))


@pytest.mark.parametrize(
    ("status", "code", "message", "launch", "terminate"),
    [
        (503, "unavailable", "No capacity in FIN-01", NoCapacity, OutcomeUnknown),
        (503, "unavailable", "maintenance", OutcomeUnknown, OutcomeUnknown),
        (400, "quota_exceeded", "", QuotaReached, NotYet),
        (409, "conflict", "", OutcomeUnknown, NotYet),
        (429, "slow", "", Throttled, Throttled),
    ],
)
async def test_the_example_errs_as_the_page_says(
    status: int, code: str, message: str, launch: type[ProviderError], terminate: type[ProviderError]
) -> None:
    provider = example(status, json={"code": code, "message": message})
    with pytest.raises(launch):
        await provider.launch(ORDER)
    with pytest.raises(terminate):
        await provider.terminate(ProviderRef("7"))
    gone = example(404, json={"code": "not_found"})
    with pytest.raises(MachineNotFound):
        await gone.terminate(ProviderRef("7"))


async def test_the_signature_of_the_page_covers_path_query_method_and_time() -> None:
    sign = run(SIGNATURE).HmacSignature("id-1", b"planted", lambda: datetime(2026, 11, 20, tzinfo=UTC))
    assert "planted" not in repr(sign)
    made = set()
    for method, url in (("GET", "/v1/a"), ("POST", "/v1/a"), ("GET", "/v1/b"), ("GET", "/v1/a?q=1")):
        request = httpx.Request(method, f"https://api.example.test{url}")
        await sign(request)
        assert request.headers["X-Timestamp"] == "2026-11-20T00:00:00+00:00"
        made.add(request.headers["Authorization"])
    assert len(made) == 4


class BotoCoreError(Exception):
    """As botocore has it."""


class EndpointConnectionError(BotoCoreError): ...


class ConnectTimeoutError(BotoCoreError): ...


class ClientError(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        error = {"Code": code, "Message": "words"}
        self.response = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("verb", "raised", "expected"),
    [
        (Verb.LAUNCH, ClientError(500, "InsufficientInstanceCapacity"), NoCapacity),
        (Verb.LAUNCH, ClientError(503, "RequestLimitExceeded"), Throttled),
        (Verb.LAUNCH, ClientError(500, "InternalError"), OutcomeUnknown),
        (Verb.TERMINATE, ClientError(400, "InvalidInstanceID.NotFound"), MachineNotFound),
        (Verb.LAUNCH, EndpointConnectionError(), Unavailable),
        (Verb.LAUNCH, BotoCoreError(), OutcomeUnknown),
        (Verb.INVENTORY, BotoCoreError(), Unavailable),
    ],
)
def test_another_client_keeps_the_same_law(
    verb: Verb, raised: Exception, expected: type[ProviderError]
) -> None:
    kinds = (ClientError, BotoCoreError, EndpointConnectionError, ConnectTimeoutError)
    module = run(OTHER_CLIENT, **{kind.__name__: kind for kind in kinds})

    def call() -> None:
        raise raised

    with pytest.raises(ProviderError) as caught:
        module.ask(verb, call)
    assert type(caught.value) is expected
