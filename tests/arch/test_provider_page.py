"""The examples of docs/providers.md are programs: they run, and keep the law that the page explains."""

import ast
import re
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from control_plane.domain.ids import ProviderRef
from providers.base import (
    LaunchOrder,
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
from tests.contract.clouds import a_key

PAGE = Path("docs/providers.md").read_text()
ADAPTER, SIGNATURE, OTHER_CLIENT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ORDER = LaunchOrder(
    a_key(), "h100.8", "FIN-01", "#cloud-config\n# hunter2-bootstrap-token", "ssh-ed25519 AAAA"
)


def run(text: str, **names: Any) -> ModuleType:
    module = ModuleType("example")
    vars(module).update(names)
    exec(compile(text, "docs/providers.md", "exec"), vars(module))
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
    (offer,) = await example(200, json={"types": [kind, kind | {"gpu": "V100"}]}).offers()
    assert (offer.cost_nano_per_hour, offer.region, offer.available) == (18_760_000_000, "fi-1", True)
    ours = {"id": 7, "status": "running", "label": a_key(), "ip": "192.0.2.7"}
    listed = {"items": [ours, {"id": 8, "status": "?"}], "total": 2, "next_token": None}
    (machine,) = await example(200, json=listed).inventory()
    assert (machine.provider_ref, machine.state) == ("7", ListedState.RUNNING)
    with pytest.raises(Unavailable):
        await example(200, json=listed | {"total": 3}).inventory()
    assert await example(201, json=ours).launch(ORDER) == "7"
    await example(204).terminate(ProviderRef("7"))


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
