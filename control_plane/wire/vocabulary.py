"""The words that answers use: every enumeration of the wire with the meaning of each value, and the kinds of id.

They describe. A reader decodes them as plain texts, so that a word which a newer API adds does not break it. Tests hold
the words of an enumeration against the ones that the control plane uses.
"""

from typing import Annotated, Literal

from msgspec import Meta


def one_of(title: str, subject: str, **meanings: str) -> Meta:
    """An enumeration that the OpenAPI document names `title`."""
    lines = "\n".join(f"- `{value}`: {meaning}" for value, meaning in meanings.items())
    return Meta(
        description=f"{subject}\n\n{lines}", extra_json_schema={"title": title, "enum": list(meanings)}
    )


def _id(prefix: str, noun: str) -> Meta:
    return Meta(
        description=f"The id of {noun}.",
        examples=[f"{prefix}_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra_json_schema={"pattern": f"^{prefix}_[0-9a-f]{{32}}$"},
    )


OrganizationIdText = Annotated[str, _id("org", "an organization")]
ProjectIdText = Annotated[str, _id("prj", "a project")]
ApiKeyIdText = Annotated[str, _id("key", "an API key")]
SessionIdText = Annotated[str, _id("ses", "a session")]
SshCertificateIdText = Annotated[str, _id("cert", "an SSH certificate")]
StoredKeyIdText = Annotated[str, _id("ssh", "an SSH key")]
EnvironmentIdText = Annotated[str, _id("env", "an environment")]
NetworkIdText = Annotated[str, _id("net", "a private network")]
ClusterIdText = Annotated[str, _id("cl", "a Kubernetes cluster")]
KubeconfigIdText = Annotated[str, _id("kc", "a kubeconfig")]
NodePoolIdText = Annotated[str, _id("np", "a node pool")]
NodeIdText = Annotated[str, _id("nd", "a node")]
UserIdText = Annotated[str, _id("user", "a user")]
ServiceAccountIdText = Annotated[str, _id("sa", "a service account")]
RoleBindingIdText = Annotated[str, _id("rb", "a role binding")]
SubjectIdText = Annotated[
    str,
    Meta(
        description="The id of a user or of a service account.",
        examples=["user_0190c2f07d1e7b3a9c54e1f2a3b4c5d6", "sa_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra_json_schema={"pattern": "^(user|sa)_[0-9a-f]{32}$"},
    ),
]
ConsoleIdText = Annotated[str, _id("con", "a request for a console")]
InvoiceIdText = Annotated[str, _id("inv", "an invoice")]
CreditNoteIdText = Annotated[str, _id("cn", "a credit note")]
ExportRunIdText = Annotated[str, _id("exp", "an export")]
ReconciliationIdText = Annotated[str, _id("rec", "a reconciliation")]
SupplierInvoiceIdText = Annotated[str, _id("sinv", "a supplier's invoice")]
SupplierUploadIdText = Annotated[str, _id("sup", "an upload of a supplier's invoice")]
QuoteIdText = Annotated[str, _id("qt", "a quote")]
LeaseIdText = Annotated[str, _id("le", "a lease")]
LiabilityIdText = Annotated[str, _id("li", "a liability")]
MachineIdText = Annotated[str, _id("mc", "a machine")]
PreemptionIdText = Annotated[str, _id("pe", "a preemption")]
ProofIdText = Annotated[str, _id("pf", "a GPU proof")]
AccountRequestIdText = Annotated[str, _id("arq", "a request concerning a provider account")]
TransactionIdText = Annotated[str, _id("tx", "a transaction of the ledger")]
ChargeIdText = Annotated[str, _id("ch", "a charge")]
QuotaRequestIdText = Annotated[str, _id("qr", "a quota request")]
DecisionIdText = Annotated[str, _id("ad", "a decision of admission")]

ArchitectureWord = Annotated[
    str,
    one_of(
        "Architecture",
        "The architecture of a machine's CPUs.",
        x86_64="AMD64, which Intel and AMD make.",
        arm64="ARM, as in hosts of GH200 and GB200. It is not sold.",
    ),
]
PriceSourceWord = Annotated[
    str,
    one_of(
        "PriceSource",
        "Where the price of an offer is from.",
        listing="The provider's list.",
        estimate="A calculation that the provider made for us.",
        table="A table of ours, because the provider publishes no prices to programs.",
    ),
]
LeaseKindWord = Annotated[
    str,
    one_of(
        "LeaseKind",
        "What a customer gets.",
        machine="A machine to log in to.",
        node="A node in a Kubernetes cluster, of a node pool. Nobody logs in to it.",
    ),
]
RoleWord = Annotated[
    str,
    one_of(
        "Role",
        "A named set of permissions, which is bound to a subject at a scope: see docs/generated/permissions.md.",
        owner="Everything that concerns the organization.",
        admin="Runs the organization: its people, projects and leases. Cannot appoint owners.",
        member="Leases machines.",
        viewer="Reads leases, and changes nothing.",
        finance="Reads usage and bills. At platform scope: posts money, and touches no machine.",
        operator="At platform scope: runs the machines, and posts no money.",
        auditor="At platform scope: reads everything, and writes nothing.",
    ),
]
ScopeKindWord = Annotated[
    str,
    one_of(
        "ScopeKind",
        "What kind of thing a role is bound to.",
        platform="The installation. Only for subjects of the platform's organization.",
        organization="The subject's own organization.",
        project="One project.",
        environment="One environment of a project.",
        lease="One lease.",
    ),
]
SubjectKindWord = Annotated[
    str,
    one_of(
        "SubjectKind",
        "What somebody is.",
        user="A person in an organization.",
        service_account="A machine's identity in an organization.",
    ),
]
SubjectStateWord = Annotated[
    str,
    one_of(
        "SubjectState",
        "Whether a user or a service account may act.",
        invited="A user who has not signed in yet. API keys that were made for it work.",
        active="Its credentials are accepted.",
        suspended="Its credentials are refused until it is resumed.",
        removed="Its credentials are refused for good.",
    ),
]
PeriodStateWord = Annotated[
    str,
    one_of(
        "PeriodState",
        "Where the closing of an accounting period stands.",
        open="Usage and money are booked.",
        closing="The month is over. What belongs to it is still booked, until nothing is missing.",
        closed="Nothing in it changes. What arrives late is a correction in a later period.",
    ),
]
SideWord = Annotated[
    str,
    one_of(
        "Side",
        "On which side an account of a kind usually has its balance.",
        debit="What we have, are owed or spent.",
        credit="What we owe or earned.",
    ),
]
LedgerAccountWord = Annotated[
    str,
    one_of(
        "AccountKind",
        "What a ledger account holds.",
        wallet="What we owe a customer: paid in or credited, and not used.",
        receivable="What a customer owes us by an invoice.",
        cash="What was paid in, less what was paid back.",
        revenue="What was used.",
        credits="What we gave customers without a payment, or back by a credit note.",
        tax_payable="Tax on invoices, which we owe the tax office.",
        rounding="What invoices in whole cents differ from the exact charges.",
        provider_cost="What providers invoiced us, by the invoices that were accepted.",
        payable="What we owe providers by these invoices.",
    ),
]
_DECIDED = {
    "top_up": "Money that a customer paid in.",
    "refund": "Money paid back out of the wallet.",
    "credit": "Money to use that nobody paid in, such as a compensation.",
    "payment": "Money paid for invoices.",
}
FinanceKindWord = Annotated[
    Literal["top_up", "refund", "credit", "payment"],
    one_of("FinanceKind", "What somebody decides on.", **_DECIDED),
]
TransactionKindWord = Annotated[
    str,
    one_of(
        "TransactionKind",
        "What a transaction of the ledger records.",
        usage="A charge for metered time.",
        invoice="Tax and rounding of an invoice.",
        charge_back="What a customer had paid in and its bank took back.",
        credit_note="What a credit note gave back.",
        supplier_invoice="What a provider invoiced us.",
        **_DECIDED,
    ),
]
OrganizationStateWord = Annotated[
    str,
    one_of(
        "OrganizationState",
        "Where an organization is in its life.",
        active="It leases and pays.",
        suspended="Its API keys read and release. Its running leases run on what is held for them.",
        closing="Its API keys are refused and its leases end; machines may live, and usage may not be posted yet.",
        closed="Nothing is alive, all usage is posted and nothing is held.",
        deleted="Its personal data is erased; the ledger and the journals stay.",
    ),
]
OrganizationEventWord = Annotated[
    str,
    one_of(
        "OrganizationEvent",
        "What changed the state of an organization.",
        suspended="An operator suspended it, perhaps once more with another reason.",
        resumed="An operator ended its suspension.",
        closure_requested="An operator closed it.",
        settled="Every lease had ended, all usage was posted and nothing was held.",
        deleted="An operator had its personal data erased.",
    ),
]
LeaseStateWord = Annotated[
    str,
    one_of(
        "LeaseState",
        "Where a lease is.",
        placing="It waits for a machine. Nothing is billed.",
        starting="A machine is being set up for it. Nothing is billed.",
        ready="Its machine is verified and can be used. This is what is billed.",
        ending="It is no longer billed; its machine is being terminated.",
        ended="Its provider has confirmed that every machine is gone.",
    ),
]
StepWord = Annotated[
    str,
    one_of(
        "Step",
        "A step between the request and the ready lease, in this order.",
        placed="An offer was chosen.",
        launched="The machine was ordered.",
        booted="The provider reports that it runs.",
        connected="It answers over SSH, with the host key that we expect.",
        gpus_verified="Its GPUs are the ones that were ordered, as its driver reports them.",
        gpus_proven="Its GPUs passed a challenge; only for SKUs that demand proof.",
        mesh_joined="It joined the private network of the organization; not for a node.",
        certificates_accepted="It accepts certificates for the lease; not for a node.",
        prepared="K3s is on the machine. This and what follows is for a node alone.",
        tunnelled="Its tunnels work: the server of its cluster answers through them.",
        started="K3s runs on it.",
        registered="It is registered in its cluster, and closed to pods.",
        measured="It has what was sold.",
        healthy="It is healthy in its cluster, and waits until its node pool can open it.",
        opened="Its labels are set, and it is open for pods.",
    ),
]
MachineStateWord = Annotated[
    str,
    one_of(
        "MachineState",
        "Where a machine is.",
        intended="It is chosen, and nothing has been requested from the provider.",
        launching="It is being ordered.",
        booting="The provider accepted the order.",
        bootstrapping="It runs and has an address; it is being checked and set up.",
        verified="It is what was ordered, and it can be reached.",
        terminating="It has to be terminated, and the provider has not confirmed that it is gone.",
        gone="The provider has confirmed that it is gone.",
    ),
]
AttemptOutcomeWord = Annotated[
    str,
    one_of(
        "AttemptOutcome",
        "How a try to serve a lease ended.",
        admitted="The lease became ready.",
        failed="The machine could not be had or used; `fail_reason` says why.",
        abandoned="The lease ended first.",
    ),
]
VerdictWord = Annotated[
    str,
    one_of(
        "MachineVerdict",
        "Our verdict on what a machine reported about its GPUs.",
        verified="They are the ones that were ordered.",
        mismatch="They differ from what was ordered.",
    ),
]
TierWord = Annotated[
    str,
    one_of(
        "Tier",
        "How much is known about the GPUs of a machine, least first.",
        listed="Only what the machine reports about itself.",
        proven="All GPUs passed a challenge lately, and none failed since.",
        watched="Proven, and they passed several challenges over at least a week.",
        attested="Proven, and we verified a report that the chip's own key signed.",
    ),
]
OccasionWord = Annotated[
    str,
    one_of(
        "Occasion",
        "Why the GPUs of a machine were challenged.",
        start="The machine was about to serve its first customer.",
        recheck="An earlier challenge failed or was not answered.",
        idle="The GPUs were idle.",
        end="The lease had ended.",
    ),
]
ProofOutcomeWord = Annotated[
    str,
    one_of(
        "ProofOutcome",
        "The outcome of a challenge.",
        passed="All answers were right and in time.",
        failed="An answer was wrong or late.",
        unanswered="Nothing is known: there was no answer.",
        emulated="The answers were right, and an emulation gave them.",
    ),
]
PhaseWord = Annotated[
    str,
    one_of(
        "Phase",
        "A timed phase of a challenge.",
        fill="The memory is filled.",
        walk="The memory is read in an order that nobody can foresee.",
        int8="Tensor tiles of 8-bit integers are multiplied.",
        bf16="Tensor tiles of bfloat16 numbers are multiplied.",
    ),
]
CapacityWord = Annotated[
    str,
    one_of("Capacity", "What kind of machine it is.", vm="A virtual machine.", baremetal="A whole host."),
]
ConfidenceWord = Annotated[
    str,
    one_of(
        "Confidence",
        "How the provider knows its stock, best first.",
        live="It counts what is free now.",
        advisory="It says whether there is some, and may be wrong.",
        static="It says nothing about stock; an order shows whether there is any.",
    ),
]
ActorKindWord = Annotated[
    str,
    one_of(
        "ActorKind",
        "Who did something.",
        customer="A customer, with an API key.",
        operator="One of us, with an API key.",
        loop="A loop of the reconciler.",
    ),
]
PurchaseWord = Annotated[
    str,
    one_of(
        "Purchase",
        "How a lease is bought. All are billed by the second; what is not used of a term, at once.",
        on_demand="Until it is released.",
        spot="For less, until it is released or the provider takes its machine back.",
        interruptible="For less, until it is released or we take its machine back, with notice.",
        committed="For less, for a term that is paid in whole, used or not.",
    ),
]
OnEvictionWord = Annotated[
    str,
    one_of(
        "OnEviction",
        "What happens when the machine of a ready spot or interruptible lease is taken back.",
        end="The lease ends with `evicted`, or, when we took it back, with `preempted`.",
        replace="Its bill is paused, and it waits for another machine, at the same price.",
    ),
]
HealthWord = Annotated[
    str,
    one_of("HealthStatus", "The health of the process.", up="It runs.", ready="It can serve requests."),
]
StreamEndWord = Annotated[
    str,
    one_of(
        "StreamEndReason",
        "Why a stream of events ends.",
        ended="The lease has ended.",
        ready="The lease is ready; only with `?until=ready`.",
        ending="The lease will never be ready; only with `?until=ready`.",
        revoked="The API key of the stream was revoked.",
    ),
]
GpuModelWord = Annotated[
    str,
    Meta(
        description="A GPU model: name, form factor and memory.",
        examples=["h100-sxm-80gb"],
        extra_json_schema={"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
    ),
]
LevelWord = Annotated[
    str,
    one_of(
        "EnvelopeLevel",
        "Where an envelope is stated, widest first.",
        ceiling="The whole organization, as its operator allows.",
        organization="The whole organization, as its owner allows.",
        project="One project.",
        environment="One environment of a project.",
    ),
]
QuotaRequestStateWord = Annotated[
    str,
    one_of(
        "QuotaRequestState",
        "What became of a quota request.",
        pending="Nobody has decided yet.",
        approved="The envelope was changed.",
        declined="The envelope stays as it was.",
        withdrawn="Whoever asked took it back.",
        expired="Nobody decided in time.",
    ),
]
ActionWord = Annotated[
    str,
    one_of(
        "AdmissionAction",
        "What somebody wants to do.",
        lease_create="Create a lease.",
        lease_place="Give a lease that waited its machine.",
        lease_run="Let a live lease run on, although its envelopes were narrowed or are used up.",
        lease_extend="Have a lease released later than it was to be.",
        lease_resize="Change the SKU of a lease.",
        lease_move="Have a lease placed in other regions, with other providers or under another ceiling of its price.",
        lease_priority="Have a lease placed before others of the organization.",
        lease_batch="Create several equal leases, all or none.",
        node_pool_create="Create the leases of all nodes of a new pool, all or none.",
        node_pool_scale="Create the leases of more nodes of a pool, all or none.",
        node_replace="Create the lease of one node, in place of one that ended.",
        quota_increase="Have a limit raised.",
    ),
]
StageWord = Annotated[
    str,
    one_of(
        "AdmissionStage",
        "The stages of admission, in order.",
        identity="Who asks, and whether they may.",
        envelope="The limits of the organization, the project and the environment.",
        policy="What is sold, and the limits of the request itself.",
        money="The balance.",
        capacity="What providers offer.",
    ),
]
RuleWord = Annotated[
    str,
    one_of(
        "AdmissionRule",
        "A rule of admission.",
        organization="The organization is active.",
        approver="Nobody approves what they asked for themselves.",
        sku="An envelope allows the SKU.",
        tier="An envelope allows what the SKU demands of the proof of its GPUs.",
        regions="An envelope allows a wanted region.",
        providers="An envelope allows a wanted provider.",
        gpus="An envelope limits the number of GPUs.",
        gpus_of_model="An envelope limits the number of GPUs of a model.",
        spend_per_hour="An envelope limits what all live leases together cost per hour.",
        spend_per_month="An envelope limits what is charged and held in a calendar month (UTC).",
        priority="An envelope limits the priority of a lease.",
        batch_size="An envelope limits how many leases one request creates.",
        parent="A wider level allows what is asked for.",
        sold="The SKU is sold.",
        price="The price is within the ceiling of the request.",
        balance="The balance covers the first hour.",
        offered="A provider has it, now or when its stock returns.",
    ),
]
OutcomeWord = Annotated[
    str,
    one_of(
        "Verdict",
        "What was decided.",
        allowed="It is within all limits.",
        burst="It is over a limit, within a burst.",
        refused="It is refused.",
    ),
]
