"""What the law suite does not reach: Nebius's traps, one by one."""

from collections.abc import Awaitable, Callable
from typing import Any

import jwt
import pytest
from google.protobuf.message import Message

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import REGION_PATTERN
from providers import nebius
from providers.base import (
    LeftOut,
    LeftOutFor,
    ListedOffer,
    ListedState,
    MachineNotFound,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    PriceSource,
    ProviderError,
    QuotaReached,
    Throttled,
    Unauthorized,
    Unavailable,
    Verb,
)
from providers.emulators.clouds.nebius import refusal
from providers.emulators.clouds.nebius_account import PROJECT_ID, TOKEN_SECONDS
from providers.emulators.scenario import ConnectionCut
from providers.listings import LAUNCH_KEY_TAG
from providers.nebius import REGIONS
from providers.nebius_api import messages_pb2 as pb
from providers.nebius_api import methods
from providers.nebius_api.access_token import USED_SHARE
from providers.rpc import Method
from tests.contract.clouds import USER_DATA_SECRET, a_key
from tests.contract.clouds.nebius import EmulatedNebius, a_private_key, a_private_pem


def answering(
    cloud: EmulatedNebius, method: Method[Any], answer: Callable[[Any], Message] | Message | BaseException
) -> EmulatedNebius:
    """The emulator, which answers this method with another message, or raises."""
    kind, _ = cloud.server.cloud._handlers[method.path]

    async def handler(request: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, Message) else answer(request)

    cloud.server.cloud._handlers[method.path] = (kind, handler)
    return cloud


def sent(cloud: EmulatedNebius, method: Method[Any], kind: type[Any]) -> list[Any]:
    return [kind.FromString(request) for _, path, request, *_ in cloud.wire.calls if path == method.path]


async def offers(cloud: EmulatedNebius) -> list[ListedOffer]:
    return [each for each in await cloud.provider.offers() if isinstance(each, ListedOffer)]


async def left_out(cloud: EmulatedNebius) -> set[tuple[str, str]]:
    found = (each for each in await cloud.provider.offers() if isinstance(each, LeftOut))
    return {(each.reason, each.name) for each in found}


async def error_of(call: Awaitable[object]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


# Failures.


async def test_a_failure_is_what_its_status_and_its_service_error_say_together() -> None:
    for status, kind, launch, terminate in (
        ("RESOURCE_EXHAUSTED", "not_enough_resources", NoCapacity, NotYet),
        ("RESOURCE_EXHAUSTED", "quota_failure", QuotaReached, NotYet),
        ("RESOURCE_EXHAUSTED", "too_many_requests", Throttled, Throttled),
        ("RESOURCE_EXHAUSTED", "", OutcomeUnknown, OutcomeUnknown),
        ("PERMISSION_DENIED", "permission_denied", Unauthorized, Unauthorized),
        ("UNAUTHENTICATED", "", Unauthorized, Unauthorized),
        ("INVALID_ARGUMENT", "bad_request", OrderRefused, NotYet),
        ("NOT_FOUND", "resource_not_found", OrderRefused, MachineNotFound),
        ("ALREADY_EXISTS", "resource_already_exists", OutcomeUnknown, NotYet),
        ("FAILED_PRECONDITION", "bad_resource_state", OrderRefused, NotYet),
        ("ABORTED", "operation_aborted", OutcomeUnknown, NotYet),
        ("INTERNAL", "internal_error", OutcomeUnknown, OutcomeUnknown),
        ("UNAVAILABLE", "", OutcomeUnknown, OutcomeUnknown),
        ("UNIMPLEMENTED", "", OutcomeUnknown, OutcomeUnknown),
    ):
        cloud = EmulatedNebius()
        refused = refusal(status, "no", kind)
        answering(cloud, methods.CREATE_INSTANCE, refused)
        answering(cloud, methods.DELETE_INSTANCE, refused)
        got = await error_of(cloud.provider.launch(cloud.order()))
        assert type(got) is launch, (status, kind)
        got = await error_of(cloud.provider.terminate(ProviderRef("x")))
        assert type(got) is terminate, (status, kind)


async def test_a_quota_is_known_by_its_words_too() -> None:
    cloud = answering(EmulatedNebius(), methods.CREATE_INSTANCE, refusal("INTERNAL", "Quota limit exceeded"))
    assert type(await error_of(cloud.provider.launch(cloud.order()))) is QuotaReached


async def test_capacity_that_is_missed_after_the_launch_was_accepted_shows_as_a_stopped_machine() -> None:
    cloud = EmulatedNebius()
    cloud.sell_out_later()
    ref = await cloud.provider.launch(cloud.order())
    (found,) = await cloud.provider.inventory()
    assert found.state is ListedState.PROVISIONING
    cloud.advance(60.0)
    (found,) = await cloud.provider.inventory()
    assert (found.state, found.native_status) == (ListedState.STOPPED, "STOPPED")
    billed = cloud.account.bill_nano()
    assert billed > 0, "its disk exists"
    await cloud.provider.terminate(ref)
    billed = cloud.account.bill_nano()
    cloud.advance(3_600.0)
    assert await cloud.provider.inventory() == ()
    assert cloud.account.bill_nano() == billed


async def test_an_operation_that_failed_at_once_still_names_the_machine_that_has_to_be_deleted() -> None:
    failed = pb.Operation(
        id="op", resource_id="computeinstance-7", status=pb.Status(code=8, message="none left")
    )
    cloud = answering(EmulatedNebius(), methods.CREATE_INSTANCE, failed)
    assert await cloud.provider.launch(cloud.order()) == "computeinstance-7"


async def test_an_operation_without_a_machine_is_what_its_status_says_and_unclear_without_one() -> None:
    error = pb.ServiceError(not_enough_resources=pb.NotEnoughResources())
    status = pb.Status(code=8, message="none left")
    status.details.add(
        type_url="type.googleapis.com/nebius.common.v1.ServiceError", value=error.SerializeToString()
    )
    for operation, expected in (
        (pb.Operation(id="op", status=status), NoCapacity),
        (pb.Operation(id="op", status=pb.Status(code=13)), OutcomeUnknown),
        (pb.Operation(id="op"), OutcomeUnknown),
        (pb.Operation(), OutcomeUnknown),
    ):
        cloud = answering(EmulatedNebius(), methods.CREATE_INSTANCE, operation)
        got = await error_of(cloud.provider.launch(cloud.order()))
        assert type(got) is expected, operation
    busy = pb.Operation(id="op", status=pb.Status(code=9, message="a disk is protected"))
    cloud = answering(EmulatedNebius(), methods.DELETE_INSTANCE, busy)
    assert type(await error_of(cloud.provider.terminate(ProviderRef("x")))) is NotYet
    cloud = answering(EmulatedNebius(), methods.DELETE_INSTANCE, pb.Operation())
    assert type(await error_of(cloud.provider.terminate(ProviderRef("x")))) is OutcomeUnknown


# A launch.


async def test_a_refusal_that_quotes_the_user_data_is_shown_without_it() -> None:
    def quoting(request: pb.CreateInstanceRequest) -> pb.Operation:
        raise refusal("INVALID_ARGUMENT", f"bad: {request.spec.cloud_init_user_data}", "bad_request")

    cloud = answering(EmulatedNebius(), methods.CREATE_INSTANCE, quoting)
    got = await error_of(cloud.provider.launch(cloud.order()))
    assert type(got) is OrderRefused
    assert USER_DATA_SECRET not in str(got)


async def test_a_launch_that_arrives_twice_is_one_machine_and_its_key_is_ours() -> None:
    cloud = EmulatedNebius()
    first = await cloud.provider.launch(cloud.order())
    assert await cloud.connected("publickey-e00emulated").launch(cloud.order()) == first
    assert cloud.ever(a_key()) == 1
    keys = [dict(m).get("x-idempotency-key") for _, path, _, m, _ in cloud.wire.calls if "Instance" in path]
    assert keys == [a_key(), a_key()]


async def test_a_delete_carries_no_idempotency_key() -> None:
    cloud = EmulatedNebius()
    ref = await cloud.provider.launch(cloud.order())
    await cloud.provider.terminate(ref)
    assert "x-idempotency-key" not in dict(cloud.wire.calls[-1][3])


async def test_a_machine_is_made_with_its_name_label_disk_and_rules_and_on_demand() -> None:
    cloud = EmulatedNebius()
    order = cloud.order()
    await cloud.provider.launch(order)
    (request,) = sent(cloud, methods.CREATE_INSTANCE, pb.CreateInstanceRequest)
    spec = request.spec
    assert (request.metadata.name, request.metadata.labels[LAUNCH_KEY_TAG]) == (a_key(), a_key())
    assert spec.cloud_init_user_data == order.user_data
    assert spec.boot_disk.WhichOneof("type") == "managed_disk"
    assert spec.recovery_policy == pb.FAIL
    assert spec.reservation_policy.policy == pb.ReservationPolicy.FORBID
    (interface,) = spec.network_interfaces
    assert interface.HasField("ip_address")
    assert interface.HasField("public_ip_address")
    (group,) = interface.security_groups
    assert {
        (rule.spec.protocol, rule.spec.WhichOneof("match"), *rule.spec.ingress.destination_ports)
        for rule in cloud.account.rules[group.id].values()
    } == {(pb.TCP, "ingress", 22), (pb.UDP, "ingress", 51_820), (pb.ANY, "egress")}


async def test_the_security_group_is_made_once_and_found_by_other_processes() -> None:
    cloud = EmulatedNebius()
    await cloud.provider.launch(cloud.order())
    await cloud.provider.launch(cloud.order(2))
    await cloud.connected("publickey-e00emulated").launch(cloud.order(3))
    assert len(cloud.account.groups) == 1
    assert sum(map(len, cloud.account.rules.values())) == 3
    assert len(sent(cloud, methods.CREATE_GROUP, pb.CreateSecurityGroupRequest)) == 1


async def test_a_security_group_that_another_replica_makes_meanwhile_is_found_by_reading_again() -> None:
    cloud = EmulatedNebius()
    mine = cloud.provider
    for _ in range(3):
        await mine.prepare(cloud.order())
    await cloud.connected("publickey-e00emulated").launch(cloud.order())
    with pytest.raises(Unavailable):
        await mine.prepare(cloud.order())
    await mine.launch(cloud.order(2))
    assert len(cloud.account.groups) == 1


async def test_a_security_group_that_somebody_deleted_is_made_again() -> None:
    cloud = EmulatedNebius()
    await cloud.provider.launch(cloud.order())
    cloud.account.groups.clear()
    cloud.account.rules.clear()
    with pytest.raises(OrderRefused):
        await cloud.provider.launch(cloud.order(2))
    await cloud.provider.launch(cloud.order(2))
    assert cloud.alive(a_key(2)) == 1


async def test_a_step_whose_answer_was_lost_is_looked_for_and_not_made_twice() -> None:
    cloud = EmulatedNebius()
    for _ in range(4):  # The group and three rules.
        cloud.lose_the_answer("prepare")
        with pytest.raises(Unavailable):
            await cloud.provider.launch(cloud.order())
    await cloud.provider.launch(cloud.order())
    assert len(cloud.account.groups) == 1
    assert sum(map(len, cloud.account.rules.values())) == 3


async def test_each_step_of_the_preparation_is_one_call() -> None:
    cloud = EmulatedNebius()
    await cloud.provider.inventory()  # Has bought a token.
    steps = 0
    while not cloud.provider.prepared(cloud.order()):
        cloud.wire.calls.clear()
        await cloud.provider.prepare(cloud.order())
        assert len(cloud.wire.calls) == 1
        steps += 1
    assert steps == 8


async def test_which_of_several_subnets_is_said_by_the_settings() -> None:
    def subnets(_: object) -> pb.ListSubnetsResponse:
        return pb.ListSubnetsResponse(
            items=[
                pb.Subnet(metadata=pb.ResourceMetadata(id=each), spec=pb.SubnetSpec(network_id="net"))
                for each in ("one", "two")
            ]
        )

    for wanted, refused in (("", "several"), ("three", "no subnet with that id")):
        cloud = answering(EmulatedNebius(), methods.LIST_SUBNETS, subnets)
        provider = nebius.connect(cloud.settings(subnet_id=wanted), transport=cloud.wire, now=cloud.clock.now)
        with pytest.raises(OrderRefused, match=refused):
            await provider.launch(cloud.order())
    cloud = answering(EmulatedNebius(), methods.LIST_SUBNETS, subnets)
    provider = nebius.connect(cloud.settings(subnet_id="two"), transport=cloud.wire, now=cloud.clock.now)
    with pytest.raises(
        OrderRefused, match="Network not found"
    ):  # It took "two", whose network the emulator lacks.
        await provider.launch(cloud.order())


async def test_an_order_for_another_region_than_the_projects_is_refused() -> None:
    cloud = EmulatedNebius()
    cloud.native_region = "us-central1"
    with pytest.raises(OrderRefused, match="eu-north1"):
        await cloud.provider.launch(cloud.order())
    assert cloud.ever(a_key()) == 0


# The list.


async def test_a_machine_that_is_stopped_and_reconciling_is_being_made() -> None:
    states = pb.InstanceStatus
    for state, reconciling, expected in (
        (states.STOPPED, True, ListedState.PROVISIONING),
        (states.STOPPED, False, ListedState.STOPPED),
        (states.STARTING, True, ListedState.PROVISIONING),
        (states.RUNNING, False, ListedState.RUNNING),
        (states.RUNNING, True, ListedState.RUNNING),
        (states.DELETING, True, ListedState.ENDING),
        (states.ERROR, False, ListedState.FAILED),
        (states.UNSPECIFIED, False, ListedState.UNKNOWN),
    ):
        instance = pb.Instance(
            metadata=pb.ResourceMetadata(id="m", name=a_key()),
            status=pb.InstanceStatus(state=state, reconciling=reconciling),
        )
        listed = pb.ListInstancesResponse(items=[instance])
        cloud = answering(EmulatedNebius(), methods.LIST_INSTANCES, listed)
        (found,) = await cloud.provider.inventory()
        assert found.state is expected, (state, reconciling)


async def test_a_public_address_is_listed_as_a_network_and_read_as_an_address() -> None:
    cloud = EmulatedNebius()
    await cloud.provider.launch(cloud.order())
    cloud.advance(200.0)
    (found,) = await cloud.provider.inventory()
    assert found.address == cloud.account.instances.address(
        next(iter(cloud.account.instances.every.values()))
    )
    assert "/" not in str(found.address)


async def test_every_page_of_the_list_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nebius, "PAGE_SIZE", 2)
    cloud = EmulatedNebius()
    cloud.native_type = "gpu-h100-sxm/1gpu-16vcpu-200gb"
    for number in range(1, 6):
        await cloud.provider.launch(cloud.order(number))
    cloud.wire.calls.clear()
    assert {each.launch_key for each in await cloud.provider.inventory()} == {a_key(n) for n in range(1, 6)}
    assert len(cloud.wire.calls) == 3
    assert len(await offers(cloud)) == 5


async def test_a_machine_is_found_by_its_name_when_somebody_removed_its_label() -> None:
    cloud = EmulatedNebius()
    ref = await cloud.provider.launch(cloud.order())
    cloud.account.instances.every[ref].metadata.labels.clear()
    (found,) = await cloud.provider.inventory()
    assert (found.provider_ref, found.launch_key) == (ref, a_key())


# Offers.


def test_every_region_has_a_jurisdiction() -> None:
    assert all(REGION_PATTERN.fullmatch(ours) for ours in REGIONS.values())
    assert {ours[:2] for ours in REGIONS.values()} == {"eu", "us", "il", "gb"}


async def test_all_types_are_priced_by_one_call_with_the_boot_disk_and_exactly() -> None:
    cloud = EmulatedNebius()
    found = {each.native_type: each for each in await offers(cloud)}
    assert cloud.wire.paths.count(methods.ESTIMATE.path) == 1
    assert found.keys() == {
        "gpu-h200-sxm/1gpu-16vcpu-200gb",
        "gpu-h200-sxm/8gpu-128vcpu-1600gb",
        "gpu-h100-sxm/1gpu-16vcpu-200gb",
        "gpu-h100-sxm/8gpu-128vcpu-1600gb",
        "gpu-l40s-a/1gpu-8vcpu-32gb",
    }, "no CPU machines, and no GPU that we do not know"
    assert await left_out(cloud) == {("unknown_gpu", "gpu-rtx6000")}
    offer = found["gpu-h200-sxm/8gpu-128vcpu-1600gb"]
    assert offer.price_source is PriceSource.ESTIMATE
    assert (
        offer.cost_nano_per_hour == 28_000_000_000 + 19_452_055
    )  # 200 GiB x 0.0000972602739726 USD, rounded up.
    shape = offer.shape
    assert (
        shape.gpu_model,
        shape.gpu_count,
        shape.vcpus,
        shape.memory_gib,
        shape.disk_gib,
        offer.region,
    ) == (
        GpuModel.H200_SXM_141GB,
        8,
        128,
        1600,
        200,
        "eu-north-1",
    )


async def test_offers_are_five_calls_the_first_time_and_three_afterwards() -> None:
    cloud = EmulatedNebius()
    for calls in (5, 3, 3):  # Token and project are kept; types, prices and what is free are read each time.
        cloud.wire.calls.clear()
        await cloud.provider.offers()
        assert len(cloud.wire.calls) == calls


async def test_a_type_without_a_price_by_the_hour_is_left_out_and_the_others_are_sold() -> None:
    def estimate(request: pb.EstimateBatchRequest) -> pb.EstimateBatchResponse:
        def cost(name: str, amount: str, unit: str = "hour") -> pb.ResourceCost:
            total = pb.GeneralResourceCost(total=pb.CostBreakdown(cost=amount))
            return pb.ResourceCost(
                metadata=pb.ResourceMetadata(name=name),
                aggregation_unit=pb.AggregationUnit(unit=unit),
                general=total,
            )

        assert len(request.resource_specs) == 6
        return pb.EstimateBatchResponse(
            currency="usd",
            resource_costs=[
                cost("disk", "0.01"),
                cost("gpu-h100-sxm/1gpu-16vcpu-200gb", "2.95"),
                cost("gpu-h100-sxm/8gpu-128vcpu-1600gb", "ask us"),
                cost("gpu-h200-sxm/1gpu-16vcpu-200gb", "2555", "month"),
            ],
        )

    cloud = answering(EmulatedNebius(), methods.ESTIMATE, estimate)
    prices = {each.native_type: each.cost_nano_per_hour for each in await offers(cloud)}
    assert prices == {"gpu-h100-sxm/1gpu-16vcpu-200gb": 2_960_000_000}
    assert {name for reason, name in await left_out(cloud) if reason == "no_price"} == {
        "gpu-h100-sxm/8gpu-128vcpu-1600gb",
        "gpu-h200-sxm/1gpu-16vcpu-200gb",
        "gpu-h200-sxm/8gpu-128vcpu-1600gb",
        "gpu-l40s-a/1gpu-8vcpu-32gb",
    }


async def test_an_estimate_in_another_currency_is_no_estimate() -> None:
    cloud = answering(EmulatedNebius(), methods.ESTIMATE, pb.EstimateBatchResponse(currency="ils"))
    with pytest.raises(Unavailable, match="currency"):
        await cloud.provider.offers()


async def test_a_type_is_sold_out_only_when_the_advisor_says_so() -> None:
    seen = pb.ResourceAdviceStatus.Availability
    limit, low = seen.AVAILABILITY_LEVEL_LIMIT_REACHED, seen.AVAILABILITY_LEVEL_LOW
    fresh, stale = seen.DATA_STATE_FRESH, seen.DATA_STATE_STALE
    name = "gpu-h100-sxm/1gpu-16vcpu-200gb"
    for available, *advised in (
        (True,),
        (False, seen(availability_level=limit, data_state=stale, available=3)),
        (False, seen(availability_level=low, data_state=fresh)),
        (True, seen(availability_level=low, data_state=fresh, available=1)),
        (True, seen(availability_level=low, data_state=stale)),
        (True, seen(availability_level=low, data_state=fresh), seen(data_state=fresh, available=8)),
    ):
        platform, _, preset = name.partition("/")
        details = pb.ComputeInstanceDetails(
            platform=platform, preset=pb.ComputeInstanceDetails.Preset(name=preset)
        )
        items = [
            pb.ResourceAdvice(
                spec=pb.ResourceAdviceSpec(region=region, compute_instance=details),
                status=pb.ResourceAdviceStatus(on_demand=each),
            )
            for each in advised
            for region in ("eu-north1",)
        ]
        elsewhere = pb.ResourceAdvice(
            spec=pb.ResourceAdviceSpec(region="us-central1", compute_instance=details),
            status=pb.ResourceAdviceStatus(on_demand=seen(data_state=fresh, available=0 if available else 9)),
        )
        answer = pb.ListResourceAdviceResponse(items=[*items, elsewhere])
        cloud = answering(EmulatedNebius(), methods.LIST_ADVICE, answer)
        found = {each.native_type: each.available for each in await offers(cloud)}
        assert found[name] is available, advised


async def test_a_project_in_a_region_without_a_jurisdiction_offers_nothing() -> None:
    project = pb.Project(
        metadata=pb.ResourceMetadata(id=PROJECT_ID, parent_id="tenant"), spec=pb.ProjectSpec(region="mars1")
    )
    cloud = answering(EmulatedNebius(), methods.GET_PROJECT, project)
    assert await cloud.provider.offers() == (LeftOut(LeftOutFor.UNKNOWN_REGION, "mars1"),)


# The access token.


async def test_a_token_is_used_until_it_is_old_and_then_renewed() -> None:
    cloud = EmulatedNebius()
    for seconds, exchanges in ((0.0, 1), (1.0, 1), (USED_SHARE * TOKEN_SECONDS, 2)):
        cloud.advance(seconds)
        await cloud.provider.inventory()
        assert cloud.wire.paths.count(methods.EXCHANGE.path) == exchanges


async def test_a_token_that_is_refused_is_replaced_by_the_next_call() -> None:
    cloud = EmulatedNebius()
    await cloud.provider.inventory()
    cloud.account._tokens.clear()
    with pytest.raises(Unauthorized):
        await cloud.provider.inventory()
    assert await cloud.provider.inventory() == ()


async def test_the_assertion_is_signed_for_a_few_minutes_and_in_no_error() -> None:
    cloud = EmulatedNebius()
    await cloud.provider.inventory()
    (exchange,) = sent(cloud, methods.EXCHANGE, pb.ExchangeTokenRequest)
    header = jwt.get_unverified_header(exchange.subject_token)
    unchecked = {"verify_exp": False, "verify_iat": False}
    claims = jwt.decode(exchange.subject_token, a_private_key().public_key(), ["RS256"], unchecked)  # type: ignore[arg-type]  # PyJWT's options are a dictionary of its own
    assert (header["kid"], header["alg"]) == ("publickey-e00emulated", "RS256")
    assert claims["iss"] == claims["sub"] == "serviceaccount-e00emulated"
    assert 0 < claims["exp"] - cloud.clock.now().timestamp() <= 300

    def quoting(request: pb.ExchangeTokenRequest) -> pb.CreateTokenResponse:
        raise refusal("INVALID_ARGUMENT", f"bad assertion {request.subject_token}", "bad_request")

    broken = answering(EmulatedNebius(), methods.EXCHANGE, quoting)
    got = await error_of(broken.provider.inventory())
    assert type(got) is Unauthorized
    assert "eyJ" not in str(got)


async def test_a_launch_whose_token_could_not_be_bought_was_not_sent() -> None:
    for failure, expected in (
        (ConnectionCut(), Unavailable),
        (refusal("INTERNAL", "oops"), Unavailable),
        (refusal("RESOURCE_EXHAUSTED", "slower", "too_many_requests"), Throttled),
        (refusal("UNAUTHENTICATED", "who?"), Unauthorized),
    ):
        cloud = answering(EmulatedNebius(), methods.EXCHANGE, failure)
        got = await error_of(cloud.provider.launch(cloud.order()))
        assert type(got) is expected, failure
        assert set(cloud.wire.paths) == {methods.EXCHANGE.path}
    for answer in (pb.CreateTokenResponse(), pb.CreateTokenResponse(access_token="two\nlines")):
        cloud = answering(EmulatedNebius(), methods.EXCHANGE, answer)
        assert type(await error_of(cloud.provider.inventory())) is Unavailable


def test_a_private_key_that_is_none_is_refused_without_being_repeated() -> None:
    cloud = EmulatedNebius()
    assert "PRIVATE" not in repr(cloud.settings())
    for text in ("", "planted-secret", a_private_pem().replace("M", "N", 3)):
        with pytest.raises(ValueError, match="no RSA private key") as caught:
            cloud.settings(private_key=text)
        assert "planted" not in str(caught.value)


async def test_verbs_are_paced_together() -> None:
    (limit,) = nebius.CAPABILITIES.rate_limits
    assert limit.verbs == frozenset(Verb)
