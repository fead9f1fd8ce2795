"""The public process: what it serves, in one list.

It writes intent and reads rows. It holds no provider key and no SSH key, and it never calls a
provider or a machine: a 202 here is a row that the reconciler finds.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from litestar import Litestar, Router
from litestar.datastructures import State

from control_plane.api.account_requests import AccountRequestController
from control_plane.api.accounts import AccountController
from control_plane.api.admissions import AdmissionController
from control_plane.api.agents import AgentController
from control_plane.api.api_keys import ApiKeyController
from control_plane.api.audit import AuditController
from control_plane.api.balance import BalanceController
from control_plane.api.balance_alerts import BalanceAlertController
from control_plane.api.billing import BillingController
from control_plane.api.catalogue import CatalogueController
from control_plane.api.charges import ChargeController
from control_plane.api.clusters import ClusterController
from control_plane.api.consoles import ConsoleController
from control_plane.api.credit_notes import CreditNoteController, FinanceCreditNoteController
from control_plane.api.credit_terms import CreditTermsController
from control_plane.api.documents import openapi
from control_plane.api.enforcement import EnforcementController, LeaseEnforcementController
from control_plane.api.envelopes import EnvelopeController
from control_plane.api.environments import EnvironmentController
from control_plane.api.errors import answer
from control_plane.api.events import EventController
from control_plane.api.exports import ExportController, ExportOfAllController
from control_plane.api.finance import LedgerController, PeriodController
from control_plane.api.finance_invoices import (
    BillingDetailsController,
    FinanceInvoiceController,
    InvoiceDraftController,
)
from control_plane.api.finance_usage import FinanceUsageController
from control_plane.api.firewalls import FirewallController
from control_plane.api.fleet import FleetController
from control_plane.api.forms import lenient, of_credentials
from control_plane.api.health import HealthController
from control_plane.api.invoices import InvoiceController
from control_plane.api.kubeconfigs import KubeconfigController
from control_plane.api.lease_ends import LeaseEndController
from control_plane.api.leases import LeaseController
from control_plane.api.liabilities import LiabilityController
from control_plane.api.loops import LoopController
from control_plane.api.margins import MarginController
from control_plane.api.me import MeController
from control_plane.api.methods import Methods
from control_plane.api.networks import NetworkController
from control_plane.api.node_pools import NodePoolController
from control_plane.api.nodes import NodeController
from control_plane.api.oauth import OAuthController
from control_plane.api.observe import Envelope, Metrics
from control_plane.api.organization_states import OrganizationStateController
from control_plane.api.organizations import OrganizationController
from control_plane.api.orphans import OrphanController
from control_plane.api.payments import PaymentController
from control_plane.api.places import Places
from control_plane.api.pools import PoolController, PoolSimulationController
from control_plane.api.preemptions import PreemptionController
from control_plane.api.price_agreements import PriceAgreementController
from control_plane.api.projects import ProjectController
from control_plane.api.proofs import ProofController
from control_plane.api.quota_requests import CeilingRequestController, QuotaRequestController
from control_plane.api.reconciliations import ReconciliationController
from control_plane.api.reference import ReferenceController
from control_plane.api.repairs import LeaseRepairController, RepairController
from control_plane.api.requests import ApiRequest, Context, authorized, public
from control_plane.api.role_bindings import RoleBindingController
from control_plane.api.server_hosts import ServerHostController
from control_plane.api.service_accounts import ServiceAccountController
from control_plane.api.sessions import SessionController
from control_plane.api.sign_in import DeviceController, SignInController
from control_plane.api.sla import SlaController
from control_plane.api.ssh_certificates import SshCertificateController
from control_plane.api.ssh_keys import SshKeyController
from control_plane.api.streams import Sleep, Streams
from control_plane.api.supplier_invoices import (
    MatchController,
    SupplierInvoiceController,
    SupplierUploadController,
)
from control_plane.api.telemetry import TelemetryController
from control_plane.api.users import UserController
from control_plane.api.well_known import WellKnownController
from control_plane.services.changes import Changes
from control_plane.services.signing_in import SigningIn
from control_plane.settings import Settings
from control_plane.world import World

BODY_BYTES_MAX = 65_536
CONTROLLERS = (
    OrganizationController,
    OrganizationStateController,
    MeController,
    UserController,
    ServiceAccountController,
    RoleBindingController,
    ApiKeyController,
    SessionController,
    SshKeyController,
    SshCertificateController,
    ConsoleController,
    FirewallController,
    ProjectController,
    EnvironmentController,
    NetworkController,
    ClusterController,
    KubeconfigController,
    NodePoolController,
    LeaseRepairController,
    RepairController,
    LeaseEnforcementController,
    EnforcementController,
    NodeController,
    PoolController,
    PoolSimulationController,
    PreemptionController,
    ServerHostController,
    EnvelopeController,
    QuotaRequestController,
    CeilingRequestController,
    AdmissionController,
    CatalogueController,
    LeaseController,
    LeaseEndController,
    SlaController,
    EventController,
    ProofController,
    TelemetryController,
    BillingController,
    BalanceController,
    BalanceAlertController,
    ExportController,
    ExportOfAllController,
    InvoiceController,
    FinanceInvoiceController,
    InvoiceDraftController,
    CreditNoteController,
    FinanceCreditNoteController,
    BillingDetailsController,
    PeriodController,
    LedgerController,
    ReconciliationController,
    PriceAgreementController,
    CreditTermsController,
    MarginController,
    SupplierInvoiceController,
    SupplierUploadController,
    MatchController,
    ChargeController,
    FinanceUsageController,
    LoopController,
    AgentController,
    OrphanController,
    FleetController,
    LiabilityController,
    AccountController,
    AuditController,
    AccountRequestController,
)
"""Everything below /v1. Each route names the permission that it needs."""


def create_app(
    world: World,
    settings: Settings,
    *,
    metrics: Metrics | None = None,
    changes: Changes | None = None,
    signing_in: SigningIn | None = None,
    sleep: Sleep = asyncio.sleep,
    lifespan: Sequence[Callable[[Litestar], AbstractAsyncContextManager[None]]] = (),
) -> Litestar:
    """The app. `lifespan` opens and closes what the process owns; tests own their world themselves."""
    metrics, changes = metrics or Metrics(), changes or Changes()
    metrics.listening.set_function(lambda: float(changes.listening))
    streams = Streams(world, Places(settings), changes, metrics.streams, sleep=sleep)
    app = Litestar(
        route_handlers=[
            Router("/", before_request=public, route_handlers=[HealthController, ReferenceController]),
            Router("/", before_request=public, route_handlers=[PaymentController]),
            Router("/", before_request=of_credentials, route_handlers=[OAuthController]),
            Router(
                "/",
                before_request=lenient,
                route_handlers=[WellKnownController, SignInController, DeviceController],
            ),
            Router("/v1", before_request=authorized, route_handlers=CONTROLLERS),
        ],
        request_class=ApiRequest,
        request_max_body_size=BODY_BYTES_MAX,
        exception_handlers={Exception: answer},
        openapi_config=openapi(),
        state=State({"context": Context(world, settings, streams, metrics, changes, signing_in=signing_in)}),
        lifespan=list(lifespan),
        logging_config=None,
        debug=False,
    )
    app.asgi_handler = Envelope(Methods(app.asgi_handler, app.routes), metrics, world)
    return app
