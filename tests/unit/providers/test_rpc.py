"""How a call over gRPC is made and judged, whatever the provider. Real channels: tests/contract/test_nebius_shapes.py."""

from collections.abc import Callable

import pytest

from providers.base import (
    Capabilities,
    MachineNotFound,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    Throttled,
    Unauthorized,
    Unavailable,
    Verb,
)
from providers.error_law import ERRORS_OF, WRITES, ErrorDetail, Meaning, error_for, rules_by_code
from providers.listings import UnreadableAnswer
from providers.nebius_api import messages_pb2 as pb
from providers.rpc import (
    CallFailedError,
    Channels,
    ErrorContract,
    Metadata,
    Method,
    NotConnectedError,
    Rpc,
    Sign,
)

TOKEN = "planted-access-token-0123456789"
GET = Method("compute", "/cloud.Machines/Get", pb.Instance)
CONTRACT = ErrorContract(
    lambda failed: ErrorDetail(failed.status, failed.message),
    rules_by_code(
        {
            "RESOURCE_EXHAUSTED": Meaning.NO_CAPACITY,
            "NOT_FOUND": Meaning.NOT_FOUND,
            "UNAUTHENTICATED": Meaning.UNAUTHORIZED,
        }
    ),
)


class Scripted:
    """A transport that answers every call with the same bytes, or raises."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer
        self.calls: list[Metadata] = []

    async def call(self, host: str, path: str, request: bytes, metadata: Metadata) -> bytes:
        self.calls.append(metadata)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None: ...


async def signed() -> Metadata:
    return (("authorization", f"Bearer {TOKEN}"),)


def rpc(transport: Scripted, *, sign: Sign | None = signed) -> Rpc:
    capabilities = Capabilities(list_lag_seconds=0.0, boot_seconds_max=1.0, user_data_bytes_max=1)
    return Rpc(transport, sign=sign, errors=CONTRACT, capabilities=capabilities)


async def error(
    verb: Verb, answer: bytes | Exception, *, sign: Sign | None = signed, private: tuple[str, ...] = ()
) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await rpc(Scripted(answer), sign=sign).call(verb, GET, pb.Instance(), refuse, private=private)
    return caught.value


def refuse(_: pb.Instance) -> None:
    raise UnreadableAnswer("not what it should be")


async def test_a_call_is_made_once_with_what_signs_it() -> None:
    transport = Scripted(pb.Instance(metadata=pb.ResourceMetadata(id="m1")).SerializeToString())
    found = await rpc(transport).call(
        Verb.INVENTORY, GET, pb.Instance(), lambda each: each.metadata.id, metadata=(("x-key", "1"),)
    )
    assert found == "m1"
    assert transport.calls == [(("authorization", f"Bearer {TOKEN}"), ("x-key", "1"))]


async def test_every_failure_is_the_error_that_the_law_has_for_the_verb_and_is_not_repeated() -> None:
    unclear: list[tuple[Verb, type[ProviderError]]] = [
        (verb, OutcomeUnknown if verb in WRITES else Unavailable) for verb in Verb
    ]
    for verb, lost in unclear:
        for answer in (
            CallFailedError("UNAVAILABLE", "Socket closed"),
            CallFailedError("DEADLINE_EXCEEDED", ""),
            CallFailedError("INTERNAL", "oops"),
            CallFailedError("A_CODE_OF_TOMORROW", "?"),
            b"\xff\xff",
            b"",
        ):
            got = await error(verb, answer)
            assert type(got) is lost, (verb, answer)
            assert type(got) in ERRORS_OF[verb]
        assert type(await error(verb, NotConnectedError("no route"))) is Unavailable
        assert type(await error(verb, CallFailedError("UNAUTHENTICATED", "who?"))) is Unauthorized
    assert type(await error(Verb.LAUNCH, CallFailedError("RESOURCE_EXHAUSTED", "none left"))) is NoCapacity
    assert type(await error(Verb.TERMINATE, CallFailedError("NOT_FOUND", "gone"))) is MachineNotFound


async def test_what_fails_before_the_call_begins_was_not_sent() -> None:
    def raising(failure: Exception) -> Callable[[], object]:
        async def sign() -> Metadata:
            raise failure

        return sign

    transport = Scripted(b"")
    for failure, expected in (
        (error_for(Verb.PREPARE, Meaning.UNAUTHORIZED, "no"), Unauthorized),
        (error_for(Verb.PREPARE, Meaning.THROTTLED, "slower"), Throttled),
        (error_for(Verb.PREPARE, Meaning.UNCLEAR, "lost"), Unavailable),
        (KeyError("planted-secret"), Unavailable),
    ):
        with pytest.raises(expected) as caught:
            await rpc(transport, sign=raising(failure)).call(Verb.LAUNCH, GET, pb.Instance(), refuse)  # type: ignore[arg-type]  # it never returns
        assert "planted" not in str(caught.value)
    assert transport.calls == []


async def test_no_error_repeats_the_token_or_what_is_private() -> None:
    for quoted in (TOKEN, f"bad header {TOKEN[:20]}", "hunter2-bootstrap-token"):
        failed = CallFailedError("INVALID_ARGUMENT", f"you sent: {quoted}")
        got = await error(Verb.LAUNCH, failed, private=("hunter2-bootstrap-token",))
        assert quoted not in str(got)
        assert quoted[-12:] not in str(got)
    harmless = await error(Verb.LAUNCH, CallFailedError("INVALID_ARGUMENT", "no such preset"))
    assert "no such preset" in str(harmless)


async def test_an_address_that_is_no_origin_is_refused() -> None:
    for text in ("api.nebius.cloud", "ftp://api.nebius.cloud", "https://api.nebius.cloud/v1", "https://"):
        with pytest.raises(ValueError, match="base_url"):
            Channels(text)
