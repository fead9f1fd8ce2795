"""Requests to AWS through botocore, which boto3 is made of: sent once, in a thread, and judged by the error law.

What `rest.py` is for adapters over HTTP, this is for adapters over AWS's own client:

  - A request is sent once; botocore's retries are off. botocore blocks, so its calls run in threads of their own: when
    AWS hangs, it holds no thread that another part of this process needs. Each region has its threads, and some that
    only terminates use, so that no region waits for another, and no terminate for anything else.
  - Every answer is looked at before botocore reads it. Anything but status 200 is a failure; botocore would take any
    document, also a proxy's page, for a success without content.
  - Clients take nothing from this host's environment: no profile, no endpoint, no credentials, no proxy.
  - No error text repeats a credential, a signature, or what the adapter names as private.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

import msgspec
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES
from botocore.exceptions import (
    BotoCoreError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ParamValidationError,
    ProxyConnectionError,
)
from botocore.loaders import Loader, create_loader
from botocore.model import OperationModel
from botocore.session import Session

from providers.base import Capabilities, ProviderError, Verb
from providers.error_law import ErrorDetail, Failure, Meaning, Rule, error_for, error_of
from providers.listings import UnreadableAnswer

CONNECT_SECONDS = 10.0
"""Shorter than the guard's shortest timeout: an AWS out of reach is Unavailable, also to a write."""
ANSWER_SECONDS: Mapping[Verb, float] = {Verb.LAUNCH: 60.0, Verb.OFFERS: 60.0}
ANSWER_SECONDS_USUAL = 30.0
"""As long as the guard waits: a thread is not held longer by a request that nobody waits for any more."""
BODY_BYTES_MAX = 16 * 1024 * 1024
THREADS = 8
"""Requests at the same time in a region of an account: so many terminates, and so many others."""
_REDIRECTS_NOT_PROCESSED = frozenset({307, 308})
_NEVER_LEFT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)

Result = TypeVar("Result")
Send = Callable[[AWSPreparedRequest], AWSResponse]
"""Takes the place of the network. It runs in a thread."""


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one AWS service, such as `ec2` and `describe_instances`."""

    service: str
    name: str


class _Refused(Exception):  # noqa: N818 - it carries an answer of AWS through botocore, and never leaves this file
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.status)
        self.failure = failure


class AwsClient:
    """One account's requests to AWS, in any region. `base_url` replaces the addresses of all services."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        rules: tuple[Rule, ...],
        capabilities: Capabilities,
        base_url: str = "",
        send: Send | None = None,
    ) -> None:
        self._credentials = credentials
        self._rules = rules
        self._rate_limits = capabilities.rate_limits
        self._base_url = base_url or None
        self._send = send
        self._session = _new_session()
        self._clients: dict[tuple[str, str, float], Any] = {}
        self._lock = threading.Lock()
        self._threads: dict[tuple[str, bool], ThreadPoolExecutor] = {}
        """By region, and whether they are those of terminates."""

    async def call(
        self,
        verb: Verb,
        region: str,
        operation: Operation,
        read: Callable[[Mapping[str, Any]], Result],
        *,
        private: str = "",
        **arguments: object,
    ) -> Result:
        """One request; returns what `read` makes of its answer. `private` is never repeated in an error.

        Raises the error of the port that the law has for whatever else happens, also inside `read`;
        only a ProviderError that `read` raises passes as it is.
        """
        ask = partial(self._ask, verb, region, operation, arguments, private)
        answer = await asyncio.get_running_loop().run_in_executor(self._threads_of(verb, region), ask)
        try:
            return read(answer)
        except ProviderError:
            raise
        except UnreadableAnswer as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - whatever an answer does to its reader, it was no readable answer
            why = f"an unreadable answer ({type(error).__name__})"
        raise error_for(verb, Meaning.UNCLEAR, why)

    async def close(self) -> None:
        """Close all connections. A request that nobody waits for any more ends by its own timeout."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()

    def _threads_of(self, verb: Verb, region: str) -> ThreadPoolExecutor:
        lane = region, verb is Verb.TERMINATE
        if lane not in self._threads:
            self._threads[lane] = ThreadPoolExecutor(THREADS, thread_name_prefix=f"aws-{region}")
        return self._threads[lane]

    def _ask(
        self, verb: Verb, region: str, operation: Operation, arguments: Mapping[str, object], private: str
    ) -> Mapping[str, Any]:
        try:
            client = self._client(operation.service, region, ANSWER_SECONDS.get(verb, ANSWER_SECONDS_USUAL))
            answer: Mapping[str, Any] = getattr(client, operation.name)(**arguments)
        except _Refused as refused:
            raise self._error(verb, refused.failure, private) from None
        except _NEVER_LEFT as error:
            raise error_for(verb, Meaning.NOT_SENT, f"no connection ({type(error).__name__})") from None
        except ParamValidationError:
            why = "a parameter is not of the form that AWS takes"  # Its own text repeats the parameter.
            raise error_for(verb, Meaning.REFUSED, why) from None
        except (BotoCoreError, UnreadableAnswer) as error:
            why = str(error) if isinstance(error, UnreadableAnswer) else type(error).__name__
            raise error_for(verb, Meaning.UNCLEAR, why) from None
        except Exception as error:  # noqa: BLE001 - whatever an answer does to botocore, it was no readable answer
            why = f"an unreadable answer ({type(error).__name__})"
            raise error_for(verb, Meaning.UNCLEAR, why) from None
        return answer

    def _error(self, verb: Verb, failure: Failure, private: str) -> ProviderError:
        if failure.status in _REDIRECTS_NOT_PROCESSED:
            return error_for(verb, Meaning.NOT_SENT, f"HTTP {failure.status}, a redirect to elsewhere")
        hidden = (self._credentials.access_key_id, self._credentials.secret_access_key, private)
        return error_of(verb, failure, self._rules, private=hidden, rate_limits=self._rate_limits)

    def _client(self, service: str, region: str, answer_seconds: float) -> Any:
        which = service, region, answer_seconds
        with self._lock:  # Making a client is not safe in several threads, using one is.
            if which not in self._clients:
                self._clients[which] = self._new_client(*which)
            return self._clients[which]

    def _new_client(self, service: str, region: str, answer_seconds: float) -> Any:
        client = self._session.create_client(
            service,
            region_name=region,
            endpoint_url=self._base_url,
            aws_access_key_id=self._credentials.access_key_id,
            aws_secret_access_key=self._credentials.secret_access_key,
            verify=True,  # With the certificates of this package, whatever AWS_CA_BUNDLE says.
            config=_CONFIG.merge(Config(read_timeout=answer_seconds)),
        )
        client.meta.events.register("before-parse", _check)
        if self._send is not None:
            send = self._send
            client.meta.events.register("before-send", lambda request, **_: send(request))
        return client


_CONFIG = Config(
    connect_timeout=CONNECT_SECONDS,
    max_pool_connections=2 * THREADS,
    retries={"total_max_attempts": 1},
    ignore_configured_endpoint_urls=True,
    proxies={},  # None would mean those of the environment.
    use_fips_endpoint=False,
    use_dualstack_endpoint=False,
    user_agent="splitplane",
)
_NOT_FROM_THE_ENVIRONMENT: Mapping[str, tuple[None, None, Any, Any]] = {
    name: (None, None, default, convert)
    for name, (_, _, default, convert) in BOTOCORE_DEFAUT_SESSION_VARIABLES.items()
} | dict.fromkeys(("profile", "config_file", "credentials_file"), (None, None, None, None))
"""Every variable of a session with its default, and neither in the environment nor in a file."""


@cache
def _loader() -> Loader:
    """Reads the descriptions of AWS's services, once for all accounts: that of EC2 has 10 MB."""
    return create_loader()


def _new_session() -> Session:
    session = Session(session_vars=_NOT_FROM_THE_ENVIRONMENT)
    session.register_component("data_loader", _loader())
    return session


def _check(response_dict: Mapping[str, Any], operation_model: OperationModel, **_: object) -> None:
    """Look at an answer before botocore reads it. Raises _Refused or UnreadableAnswer for all but a success."""
    status, body = int(response_dict["status_code"]), bytes(response_dict["body"])
    if len(body) > BODY_BYTES_MAX:
        raise UnreadableAnswer(f"HTTP {status} with more than {BODY_BYTES_MAX} bytes")
    in_json = operation_model.service_model.protocol == "json"
    if status != 200:
        headers = response_dict["headers"]
        detail = _detail_of_json(body) if in_json else _detail_of_xml(body)
        raise _Refused(Failure(status, detail, _retry_after_seconds(headers)))
    if not (_is_json(body) if in_json else _is_answer_to(operation_model.name, body)):
        raise UnreadableAnswer(f"HTTP {status} with a body that is no answer to {operation_model.name}")


class _JsonFailure(msgspec.Struct):
    type: str = msgspec.field(name="__type")
    message: str = ""
    Message: str = ""


def _detail_of_json(body: bytes) -> ErrorDetail | None:
    try:
        failure = msgspec.json.decode(body, type=_JsonFailure)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return ErrorDetail(failure.type.rpartition("#")[2], failure.message or failure.Message)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _detail_of_xml(body: bytes) -> ErrorDetail | None:
    """Code and message of `<Response><Errors><Error>`, EC2's form of an error."""
    root = _xml(body)
    if root is None or _name(root) != "Response":
        return None
    error = next((each for each in root.iter() if _name(each) == "Error"), None)
    texts = {_name(each): each.text or "" for each in (() if error is None else error)}
    return ErrorDetail(texts["Code"], texts.get("Message", "")) if texts.get("Code") else None


def _is_answer_to(operation: str, body: bytes) -> bool:
    root = _xml(body)
    return root is not None and _name(root) == f"{operation}Response"


def _xml(body: bytes) -> ET.Element | None:
    try:
        return ET.fromstring(body)  # noqa: S314 - botocore reads it with the same parser
    except (ET.ParseError, ValueError):
        return None


def _name(element: ET.Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def filter_of(name: str, *values: str) -> dict[str, Any]:
    """A filter of EC2's `Describe` operations."""
    return {"Name": name, "Values": list(values)}


def tags(pairs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The tags of a resource by their names."""
    return {pair["Key"]: pair["Value"] for pair in pairs}
