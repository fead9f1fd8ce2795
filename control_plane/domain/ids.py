"""Every id is a UUIDv7 in code and carries a prefix on the wire: `le_0190c2...`.

The prefix shows what a pasted id identifies, and lets the API refuse a machine id where a lease
id belongs. `World.new_id` makes the ids: the domain has no randomness.
"""

import re
from enum import StrEnum
from typing import NewType
from uuid import UUID

OrganizationId = NewType("OrganizationId", UUID)
ProjectId = NewType("ProjectId", UUID)
EnvironmentId = NewType("EnvironmentId", UUID)
NetworkId = NewType("NetworkId", UUID)
UserId = NewType("UserId", UUID)
ServiceAccountId = NewType("ServiceAccountId", UUID)
RoleBindingId = NewType("RoleBindingId", UUID)
ApiKeyId = NewType("ApiKeyId", UUID)
SessionId = NewType("SessionId", UUID)
SshKeyId = NewType("SshKeyId", UUID)
SshCertificateId = NewType("SshCertificateId", UUID)
FirewallRuleId = NewType("FirewallRuleId", UUID)
ConsoleId = NewType("ConsoleId", UUID)
LeaseId = NewType("LeaseId", UUID)
QuoteId = NewType("QuoteId", UUID)
PriceAgreementId = NewType("PriceAgreementId", UUID)
MachineId = NewType("MachineId", UUID)
PoolId = NewType("PoolId", UUID)
PreemptionId = NewType("PreemptionId", UUID)
ClaimId = NewType("ClaimId", UUID)
LedgerAccountId = NewType("LedgerAccountId", UUID)
DataKeyId = NewType("DataKeyId", UUID)
SecretId = NewType("SecretId", UUID)
EnvelopeId = NewType("EnvelopeId", UUID)
QuotaRequestId = NewType("QuotaRequestId", UUID)
AdmissionDecisionId = NewType("AdmissionDecisionId", UUID)
ClusterId = NewType("ClusterId", UUID)
NodeId = NewType("NodeId", UUID)
NodePoolId = NewType("NodePoolId", UUID)
KubeconfigId = NewType("KubeconfigId", UUID)
ClusterTenantId = NewType("ClusterTenantId", UUID)
ScaledPoolId = NewType("ScaledPoolId", UUID)
AccountRequestId = NewType("AccountRequestId", UUID)
SlaBreachId = NewType("SlaBreachId", UUID)
FindingId = NewType("FindingId", UUID)
EnforcementActionId = NewType("EnforcementActionId", UUID)
LaunchKey = NewType("LaunchKey", str)
"""Our id for the order of one machine. The provider stores it as a tag, a name or a token."""
ProviderRef = NewType("ProviderRef", str)
"""The provider's id for a machine."""
AccountName = NewType("AccountName", str)
"""A provider account as configured: `lambda_cloud`, or `lambda_cloud/research` for a second one."""
ServerHostName = NewType("ServerHostName", str)
"""A host of ours for servers of clusters, as an operator named it."""


class Prefix(StrEnum):
    ORGANIZATION = "org"
    PROJECT = "prj"
    ENVIRONMENT = "env"
    NETWORK = "net"
    USER = "user"
    SERVICE_ACCOUNT = "sa"
    ROLE_BINDING = "rb"
    API_KEY = "key"
    SESSION = "ses"
    SSH_KEY = "ssh"
    SSH_CERTIFICATE = "cert"
    FIREWALL_RULE = "fw"
    CONSOLE = "con"
    LEASE = "le"
    QUOTE = "qt"
    PRICE_AGREEMENT = "pa"
    MACHINE = "mc"
    POOL = "pl"
    REPAIR = "rp"
    PREEMPTION = "pe"
    LIABILITY = "li"
    CLUSTER = "cl"
    NODE = "nd"
    NODE_POOL = "np"
    KUBECONFIG = "kc"
    CHARGE = "ch"
    EXPORT_RUN = "exp"
    RECONCILIATION = "rec"
    INVOICE = "inv"
    CREDIT_NOTE = "cn"
    SUPPLIER_INVOICE = "sinv"
    SUPPLIER_UPLOAD = "sup"
    TRANSACTION = "tx"
    PROOF = "pf"
    ACCOUNT_REQUEST = "arq"
    QUOTA_REQUEST = "qr"
    ADMISSION_DECISION = "ad"
    AUDIT_EVENT = "aud"
    SLA_BREACH = "br"
    ENFORCEMENT_ACTION = "ea"


class MalformedIdError(ValueError):
    """The text is not an id of the kind that belongs here."""


def on_wire(prefix: Prefix, value: UUID) -> str:
    return f"{prefix}_{value.hex}"


_HEX = re.compile(r"[0-9a-f]{32}")


def off_wire(prefix: Prefix, text: str) -> UUID:
    """Read an id back; raises MalformedIdError for another prefix or any spelling but ours.

    `UUID(hex=...)` alone is not a check: it reads `0x`, underscores, spaces and foreign digits.
    """
    head, _, tail = text.partition("_")
    if head != prefix or not _HEX.fullmatch(tail):
        raise MalformedIdError(
            f"expected an id like {prefix}_ followed by 32 lower-case hexadecimal digits, got {text[:60]!r}"
        )
    return UUID(hex=tail)


_LAUNCH_KEY = re.compile(r"sp-([0-9a-f]{8})-([0-9a-f]{32})")


def launch_key(installation: str, machine_id: UUID) -> LaunchKey:
    """The launch key of a machine: 44 characters, DNS-safe, short enough for every provider's name rule.

    `installation` is eight hexadecimal digits, drawn once per database. Two installations that share
    a provider account (staging and production) must never take each other's machines for orphans.
    """
    return LaunchKey(f"sp-{installation}-{machine_id.hex}")


def installation_of(key: str) -> str | None:
    """The installation of this product that made `key`; None when it is no launch key."""
    match = _LAUNCH_KEY.fullmatch(key)
    return match.group(1) if match else None
