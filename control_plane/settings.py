"""Settings of the API process and the admin commands, read once from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from control_plane.db.connect import DatabaseUrlError, check_url
from control_plane.domain.secret import MasterKey, kms_region
from control_plane.identity.urls import is_trusted_url
from environment import reading
from environment.reading import SettingsError, Variable

__all__ = ["Address", "Settings", "SettingsError", "read", "refuse_secrets"]

FORBIDDEN_PREFIXES = ("PROVIDER_", "SPLITPLANE_UNSEALING_KEYS")
"""Prefixes of secrets that the public process must not hold. It refuses to start when it could read one."""
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Read `host:port`. Raises ValueError."""
    host, port = reading.endpoint(text)
    return Address(host.strip("[]"), port)


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"must be IP networks, separated by commas: {error}") from error


def _https(text: str) -> str:
    """A URL with https, or http on this machine. Raises ValueError."""
    if not is_trusted_url(text) or "?" in text:
        raise ValueError("must be a URL with https, or with http and a host of this machine, without a query")
    return text


def _public_url(text: str) -> str:
    if urlsplit(_https(text)).path not in ("", "/"):
        raise ValueError("must be a URL without a path")
    return text.rstrip("/")


def _issuer(text: str) -> str:
    return _https(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def database_url(text: str) -> str:
    """Check the URL of a database. Raises ValueError, without the URL, which may hold a password."""
    try:
        check_url(text)
    except DatabaseUrlError as error:
        raise ValueError(f"names no PostgreSQL database: {error}") from error
    return text


DatabaseUrl = Annotated[
    str,
    AfterValidator(database_url),
    Variable("SPLITPLANE_DATABASE_URL", "the PostgreSQL database, `postgresql://...`; may hold a password"),
]


def kms_key(text: str) -> MasterKey:
    """Check the ARN of a key in AWS KMS. Raises ValueError."""
    if kms_region(text) is None:
        raise ValueError("must be the ARN of a key in AWS KMS, such as arn:aws:kms:REGION:ACCOUNT:key/ID")
    return MasterKey(text)


KmsKey = Annotated[
    MasterKey | None,
    BeforeValidator(reading.parsed(kms_key)),
    Variable("SPLITPLANE_KMS_KEY", "AWS KMS: the ARN of the key that wraps data keys"),
]
_Listen = Annotated[Address, BeforeValidator(reading.parsed(address))]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: DatabaseUrl = field(repr=False)
    listen: Annotated[_Listen, Variable("SPLITPLANE_LISTEN", "host and port of the API")] = Address(
        "127.0.0.1", 8080
    )
    metrics_listen: Annotated[
        _Listen, Variable("SPLITPLANE_METRICS_LISTEN", "host and port of `/metrics`")
    ] = Address("127.0.0.1", 9090)
    requests_per_second: Annotated[
        float,
        Field(ge=1, le=1_000_000),
        Variable("SPLITPLANE_REQUESTS_PER_SECOND", "requests per API key, on average"),
    ] = 100
    requests_burst: Annotated[
        _Count, Variable("SPLITPLANE_REQUESTS_BURST", "requests per API key, at once")
    ] = 200
    organization_requests_per_second: Annotated[
        float,
        Field(ge=1, le=1_000_000),
        Variable("SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND", "requests per organization, on average"),
    ] = 200
    organization_requests_burst: Annotated[
        _Count,
        Variable("SPLITPLANE_ORGANIZATION_REQUESTS_BURST", "requests per organization, at once"),
    ] = 400
    anonymous_requests_per_second: Annotated[
        float,
        Field(ge=1, le=1_000_000),
        Variable(
            "SPLITPLANE_ANONYMOUS_REQUESTS_PER_SECOND",
            "requests without a valid API key, per client address and process",
        ),
    ] = 20
    region: Annotated[
        str,
        Field(max_length=64, pattern=r"^[a-zA-Z0-9-]*$"),
        Variable("SPLITPLANE_REGION", "where this process runs, such as `eu-west-1`, for the audit log"),
    ] = ""
    seller: Annotated[
        str,
        # It begins a cell of exports, which a spreadsheet would take for a formula.
        Field(min_length=1, max_length=200, pattern=r"^[^=+@\s-]"),
        Variable("SPLITPLANE_SELLER", "the company that sells and invoices, as exports of charges name it"),
    ] = "Splitplane"
    seller_address: Annotated[
        str,
        Field(max_length=500),
        Variable("SPLITPLANE_SELLER_ADDRESS", "its address on invoices, with `;` between the lines"),
    ] = ""
    seller_tax_id: Annotated[
        str,
        Field(max_length=32, pattern=r"^[A-Z0-9 ./-]*$"),
        Variable("SPLITPLANE_SELLER_TAX_ID", "its number for tax on invoices, such as a VAT number"),
    ] = ""
    payment_secrets: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_PAYMENT_SECRETS_PATH",
            "file: the secrets that events of the payment provider are signed with, one in each line; without it, there"
            " is no payment port",
        ),
    ] = None
    invoice_prefix: Annotated[
        str,
        Field(max_length=16, pattern=r"^[A-Z0-9][A-Z0-9-]*$"),
        Variable("SPLITPLANE_INVOICE_PREFIX", "what the numbers of invoices begin with: `INV-2026-000001`"),
    ] = "INV"
    credit_note_prefix: Annotated[
        str,
        Field(max_length=16, pattern=r"^[A-Z0-9][A-Z0-9-]*$"),
        Variable(
            "SPLITPLANE_CREDIT_NOTE_PREFIX", "what the numbers of credit notes begin with: `CN-2026-000001`"
        ),
    ] = "CN"
    trusted_proxies: Annotated[
        tuple[Network, ...],
        BeforeValidator(reading.parsed(_networks)),
        Variable(
            "SPLITPLANE_TRUSTED_PROXIES",
            "networks whose `X-Forwarded-For` is believed, such as `10.0.0.0/8,fd00::/8`",
        ),
    ] = ()
    connections_max: Annotated[
        _Count,
        Variable(
            "SPLITPLANE_CONNECTIONS_MAX",
            "open connections of clients to the API; never less than all event streams and 1,024 more",
        ),
    ] = 16_384
    idle_seconds: Annotated[
        int,
        Field(ge=5, le=600),
        Variable(
            "SPLITPLANE_IDLE_SECONDS",
            "how long the head of a request may take, and a connection stay idle between two requests; longer than the"
            " proxy keeps an idle connection to the API",
        ),
    ] = 10
    streams_max: Annotated[
        _Count,
        Variable(
            "SPLITPLANE_STREAMS_MAX",
            "open event streams per process; each takes about 42 KiB and one open file",
        ),
    ] = 5_000
    streams_per_organization_max: Annotated[
        _Count,
        Variable(
            "SPLITPLANE_STREAMS_PER_ORGANIZATION_MAX", "open event streams per organization and process"
        ),
    ] = 1_000
    streams_per_key_max: Annotated[
        _Count, Variable("SPLITPLANE_STREAMS_PER_KEY_MAX", "open event streams per API key and process")
    ] = 500
    database_connections: Annotated[
        _Count,
        Variable("SPLITPLANE_DATABASE_CONNECTIONS", "connections for writes, and as many again for reads"),
    ] = 10
    kms_key: KmsKey = None
    sealing_key: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_SEALING_KEY_PATH",
            "without AWS KMS, file: the public X25519 key that data keys are wrapped for",
        ),
    ] = None
    public_url: Annotated[
        str | None,
        BeforeValidator(reading.parsed(_public_url)),
        Variable(
            "SPLITPLANE_PUBLIC_URL",
            "the URL of the API as clients and browsers know it, such as `https://api.example.com`; turns tokens on",
        ),
    ] = None
    token_key: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_TOKEN_KEY_PATH",
            "without AWS KMS, file: the private X25519 keys that seal the keys of access tokens, the newest last; only"
            " its owner may have access",
        ),
    ] = None
    oidc_issuer: Annotated[
        str | None,
        BeforeValidator(reading.parsed(_issuer)),
        Variable(
            "SPLITPLANE_OIDC_ISSUER",
            "the OpenID provider that people sign in with, exactly as it names itself",
        ),
    ] = None
    oidc_client_id: Annotated[
        str, Variable("SPLITPLANE_OIDC_CLIENT_ID", "our client id at the OpenID provider")
    ] = ""
    oidc_client_secret: Annotated[
        Path | None,
        Variable(
            "SPLITPLANE_OIDC_CLIENT_SECRET_PATH",
            "file: our client secret at the OpenID provider; a public client has none",
        ),
    ] = None
    oidc_email_domains: Annotated[
        tuple[str, ...],
        BeforeValidator(reading.parsed(_words)),
        Variable(
            "SPLITPLANE_OIDC_EMAIL_DOMAINS",
            "domains of the email addresses that people may sign in with, separated by commas; any when it is not set",
        ),
    ] = ()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        BeforeValidator(reading.parsed(str.lower)),
        Variable("SPLITPLANE_LOG_LEVEL", "`debug`, `info`, `warning` or `error`"),
    ] = "info"


def read(environment: Mapping[str, str]) -> Settings:
    """Raises SettingsError."""
    return reading.read(Settings, environment)


def refuse_secrets(environment: Mapping[str, str]) -> None:
    """Raise SettingsError when the environment holds a secret that the public process must not be able to read."""
    found = sorted(name for name in environment if name.startswith(FORBIDDEN_PREFIXES))
    if found:
        raise SettingsError(
            f"{', '.join(found)}: the API process holds no provider key, no SSH key and no key that opens secrets;"
            " give them to the reconciler only"
        )
