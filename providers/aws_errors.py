"""What AWS's error codes mean to us. See the traps in `aws.py`."""

from control_plane.domain.block import BlockScope
from providers.base import Verb
from providers.error_law import Meaning, Rule, rules_by_code

_SOLD_OUT = (
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientCapacity",
    "UnfulfillableCapacity",
    "Unsupported",
    "SpotMaxPriceTooLow",
)
_ZONE_FULL = ("InsufficientVolumeCapacity", "InsufficientFreeAddressesInSubnet")
"""Whatever is ordered in this zone, there is no volume or no address for it."""
_TYPE_QUOTAS = ("InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded")
"""They are counted for families of types: another type may have some left."""
_QUOTAS = (
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
    "AddressLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "SecurityGroupLimitExceeded",
    "RulesPerSecurityGroupLimitExceeded",
    "SecurityGroupsPerInterfaceLimitExceeded",
)
_UNAUTHORIZED = (
    "AuthFailure",
    "UnauthorizedOperation",
    "OptInRequired",
    "PendingVerification",
    "Blocked",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "IncompleteSignature",
    "RequestExpired",
    "UnrecognizedClientException",
    "AccessDeniedException",
)
RULES = (
    *(Rule(Meaning.NO_CAPACITY, code=code, verb=Verb.LAUNCH) for code in _SOLD_OUT),
    *(Rule(Meaning.NO_CAPACITY, code=code, verb=Verb.LAUNCH, scope=BlockScope.ZONE) for code in _ZONE_FULL),
    # A start may find no capacity. A one-time spot machine cannot be stopped, so `Unsupported` is not among these.
    *(
        Rule(Meaning.NO_CAPACITY, code=f"Insufficient{what}Capacity", verb=Verb.POWER)
        for what in ("Instance", "Host", "")
    ),
    # The right to make the role that spot needs is missing. Machines on demand need none.
    Rule(Meaning.REFUSED, code="AuthFailure.ServiceLinkedRoleCreationNotPermitted", verb=Verb.LAUNCH),
    # A machine may exist, or have existed, under this launch key.
    Rule(Meaning.UNCLEAR, code="IdempotentParameterMismatch", verb=Verb.LAUNCH),
    Rule(Meaning.UNCLEAR, code="IdempotentInstanceTerminated", verb=Verb.LAUNCH),
    # Another replica was faster: reading again finds it.
    Rule(Meaning.BUSY, code="InvalidGroup.Duplicate", verb=Verb.PREPARE),
    Rule(Meaning.BUSY, code="InvalidPermission.Duplicate", verb=Verb.PREPARE),
    Rule(Meaning.NOT_FOUND, code="InvalidInstanceID.*", verb=Verb.TERMINATE),
    Rule(Meaning.NOT_FOUND, code="InvalidInstanceID.*", verb=Verb.POWER),
    Rule(Meaning.NOT_FOUND, code="InvalidInstanceID.*", verb=Verb.CONSOLE),
    Rule(Meaning.BUSY, code="IncorrectInstanceState", verb=Verb.POWER),
    Rule(Meaning.NOT_FOUND, code="InvalidInstanceID.*", verb=Verb.FIREWALL),
    Rule(Meaning.BUSY, code="IncorrectInstanceState", verb=Verb.FIREWALL),
    Rule(Meaning.BUSY, code="InvalidGroup.Duplicate", verb=Verb.FIREWALL),
    Rule(Meaning.BUSY, code="InvalidPermission.Duplicate", verb=Verb.FIREWALL),
    # The machine is in it until it is gone.
    Rule(Meaning.BUSY, code="DependencyViolation", verb=Verb.CHILDREN),
    *(Rule(Meaning.QUOTA_REACHED, code=code, scope=BlockScope.TYPE) for code in _TYPE_QUOTAS),
    *rules_by_code(dict.fromkeys(_QUOTAS, Meaning.QUOTA_REACHED)),
    *rules_by_code(dict.fromkeys(_UNAUTHORIZED, Meaning.UNAUTHORIZED)),
    *rules_by_code(dict.fromkeys(("RequestLimitExceeded", "ThrottlingException"), Meaning.THROTTLED)),
)
