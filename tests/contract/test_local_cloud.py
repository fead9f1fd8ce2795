"""The emulated local cloud: its list, its clock and its scenario control, also over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx
import pytest
import uvicorn

from control_plane.domain.money import Nano
from providers import local
from providers.base import ListedOffer, ListedState, OutcomeUnknown, Unavailable
from providers.emulators.__main__ import Server
from providers.emulators.clouds.local import EVICTED_SHOWN, PAGE_SIZE, TERMINATED_SHOWN
from providers.emulators.host import EmulatedGpu, MachineSpec, SimulatedHost
from providers.emulators.scenario import EmulatorTransport, FaultKind
from tests.contract.clouds import a_key
from tests.contract.clouds.local import EmulatedLocalCloud, make


@pytest.fixture
async def cloud() -> AsyncIterator[EmulatedLocalCloud]:
    made = make()
    assert isinstance(made, EmulatedLocalCloud)
    yield made
    await made.provider.close()


async def test_a_list_of_many_pages_is_complete(cloud: EmulatedLocalCloud) -> None:
    numbers = range(1, 2 * PAGE_SIZE + 2)
    refs = [await cloud.provider.launch(cloud.order(number)) for number in numbers]

    assert [each.provider_ref for each in await cloud.provider.inventory()] == refs
    assert cloud.scenario.calls["inventory"] == 3


async def test_exactly_full_pages_end_without_an_empty_one(cloud: EmulatedLocalCloud) -> None:
    for number in range(1, PAGE_SIZE + 1):
        await cloud.provider.launch(cloud.order(number))

    assert len(await cloud.provider.inventory()) == PAGE_SIZE
    assert cloud.scenario.calls["inventory"] == 1


@pytest.mark.parametrize(
    "pages",
    [
        [{"machines": []}],
        [{"machines": [], "next_cursor": "1"}, {"machines": [], "next_cursor": "1"}],
        [{"machines": None, "next_cursor": None}],
        ["<html>maintenance</html>"],
    ],
    ids=["no word on more", "a cursor twice", "no machines", "a proxy's page"],
)
async def test_a_list_that_does_not_say_it_is_whole_is_an_error(pages: list[object]) -> None:
    answers = iter(pages)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=next(answers)))
    provider = local.connect(local.Settings(token="t", url="http://local.test"), transport=transport)

    with pytest.raises(Unavailable):
        await provider.inventory()
    await provider.close()


async def test_a_new_machine_is_invisible_for_the_list_lag_and_then_shows(cloud: EmulatedLocalCloud) -> None:
    cloud.scenario.list_lag_seconds = 4.0
    ref = await cloud.provider.launch(cloud.order())

    assert await cloud.provider.inventory() == ()
    cloud.advance(4.0)
    assert [each.provider_ref for each in await cloud.provider.inventory()] == [ref]


async def test_a_hidden_machine_is_never_listed_and_the_control_still_sees_it(
    cloud: EmulatedLocalCloud,
) -> None:
    cloud.scenario.add("launch", FaultKind.HIDDEN)
    await cloud.provider.launch(cloud.order())

    cloud.advance(3_600.0)
    assert await cloud.provider.inventory() == ()
    assert [machine["hidden"] for machine in cloud.emulated.everything()] == [True]


async def test_a_boot_delay_holds_the_machine_back(cloud: EmulatedLocalCloud) -> None:
    cloud.scenario.boot_delay_seconds = 60.0
    await cloud.provider.launch(cloud.order())

    cloud.advance(59.0)
    assert [each.state for each in await cloud.provider.inventory()] == [ListedState.PROVISIONING]
    cloud.advance(1.0)
    assert [each.state for each in await cloud.provider.inventory()] == [ListedState.RUNNING]


async def test_a_terminated_machine_stays_visible_for_a_while(cloud: EmulatedLocalCloud) -> None:
    ref = await cloud.provider.launch(cloud.order())
    await cloud.provider.terminate(ref)
    await asyncio.sleep(0)

    assert [each.state for each in await cloud.provider.inventory()] == [ListedState.GONE]
    cloud.advance(TERMINATED_SHOWN.total_seconds() + 1)
    assert await cloud.provider.inventory() == ()


async def _available(cloud: EmulatedLocalCloud) -> list[bool]:
    """Of each offer of the cloud's type on demand, whether it is in stock."""
    listed = [each for each in await cloud.provider.offers() if isinstance(each, ListedOffer)]
    return [
        offer.available for offer in listed if (offer.native_type, offer.spot) == (cloud.native_type, False)
    ]


async def test_the_last_machine_in_stock_sells_out_and_its_end_puts_it_back(
    cloud: EmulatedLocalCloud,
) -> None:
    cloud.scenario.stock[cloud.native_type, cloud.native_region] = 1
    ref = await cloud.provider.launch(cloud.order())
    assert await _available(cloud) == [False]

    await cloud.provider.terminate(ref)
    await cloud.provider.inventory()
    assert await _available(cloud) == [True]


@dataclass
class Booted(SimulatedHost):
    specs: tuple[MachineSpec, ...] = ()

    async def boot(self, spec: MachineSpec) -> None:
        self.specs = (*self.specs, spec)
        await super().boot(spec)


async def test_a_wrong_gpu_is_another_card_than_was_sold(cloud: EmulatedLocalCloud) -> None:
    host = Booted(cloud.clock.now)
    cloud.emulated.host = host
    cloud.scenario.add("launch", FaultKind.WRONG_GPU)

    await cloud.provider.launch(cloud.order(1))
    await cloud.provider.launch(cloud.order(2))
    assert [spec.gpus for spec in host.specs] == [
        (EmulatedGpu("NVIDIA L4", 23034),) * 8,
        (EmulatedGpu("NVIDIA H100 80GB HBM3", 81559),) * 8,
    ]


async def test_faults_set_over_http_and_a_connection_that_is_really_cut(cloud: EmulatedLocalCloud) -> None:
    server = Server(uvicorn.Config(cloud.app, port=0, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event to wait for
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    provider = local.connect(local.Settings(token=cloud.secret or "", url=url))
    async with httpx.AsyncClient(base_url=url) as control:
        answer = await control.post("/__control", json={"faults": [{"verb": "launch", "kind": "cut_after"}]})
        assert answer.json()["faults"] == [{"verb": "launch", "kind": "cut_after", "times": 1}]
        with pytest.raises(OutcomeUnknown):
            await provider.launch(cloud.order())
        seen = (await control.get("/__control")).json()
        typo = await control.post("/__control", json={"fault": []})
    await provider.close()
    server.should_exit = True
    await serving

    assert (seen["calls"], seen["faults"]) == ({"launch": 1}, [])
    assert [machine["name"] for machine in seen["machines"]] == [a_key()]
    assert typo.status_code == 400


async def test_a_spot_machine_is_taken_back_by_its_address_and_one_on_demand_never(
    cloud: EmulatedLocalCloud,
) -> None:
    spot = replace(cloud.order(1), spot=True, cost_nano_per_hour_max=Nano(10**11))
    await cloud.provider.launch(spot)
    await cloud.provider.launch(cloud.order(2))
    cloud.advance(cloud.seconds_to_run)
    address, other = (each.address for each in await cloud.provider.inventory())
    transport = EmulatorTransport(cloud.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://local.test") as control:
        for machine, status in ((address, 202), (address, 404), (other, 409), ("10.0.0.99", 404)):
            answer = await control.post("/__control/evictions", json={"machine": machine})
            assert answer.status_code == status, (machine, answer.text)
            await asyncio.sleep(0)
    cloud.advance(EVICTED_SHOWN.total_seconds())
    taken, running = await cloud.provider.inventory()
    assert (taken.state, running.state) == (ListedState.GONE, ListedState.RUNNING)
    assert (taken.eviction is not None, running.eviction) == (True, None)


async def test_a_gpu_of_a_running_machine_is_made_to_fail_over_the_control(
    cloud: EmulatedLocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cloud.provider.launch(cloud.order(1))
    cloud.advance(cloud.seconds_to_run)
    (machine,) = await cloud.provider.inventory()
    step: dict[str, object] = {"at": 0, "gpu": 3, "xid": 79, "lost": True}
    scripted: list[dict[str, object]] = []

    async def script_gpu(_: str, step: dict[str, object]) -> None:
        scripted.append(step)

    transport = EmulatorTransport(cloud.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://local.test") as control:

        async def status(name: str | None, step: dict[str, object]) -> int:
            body = {"machine": name, "step": step}
            return (await control.post("/__control/gpu_faults", json=body)).status_code

        assert await status(machine.address, step) == 409, "simulated machines have no GPUs"
        monkeypatch.setattr(cloud.emulated.host, "script_gpu", script_gpu, raising=False)
        assert await status(machine.address, step) == 202
        assert await status("10.0.0.99", step) == 404
        assert await status(machine.address, {"xid": 79}) == 400
    assert scripted == [step]
