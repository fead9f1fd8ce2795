"""The import contracts notice what they are for: each is broken by one import that it forbids."""

import tomllib
from copy import deepcopy
from pathlib import Path

import grimp
import pytest
from importlinter import configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

configuration.configure()
OPTIONS = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]
KINDS: dict[str, type[Contract]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
}
ALONE = "The agent needs nothing but Python and NVML"
ONE_WAY = "The data plane's folders build on each other one way"
SIDES = "The sides of a GPU proof share the protocol only"
NO_CIRCLE = "No folder of the data plane imports in a circle"
NO_CHEATS = "No product package imports tests, cheats among them, or what deploys it"
INFRA = "Infra stands alone, and knows the names of settings only"
BREAKS = [
    ("The data plane imports nothing of ours", "data_plane.access.port", "control_plane.domain.ids"),
    (ONE_WAY, "data_plane.proof.prover.device", "data_plane.agent.guard"),
    (ONE_WAY, "data_plane.access.port", "data_plane.mesh.port"),
    (ONE_WAY, "data_plane.nvml.library", "data_plane.access.line"),
    (ONE_WAY, "data_plane.agent.guard", "data_plane.simulation.timing"),
    (SIDES, "data_plane.proof.protocol.wire", "data_plane.proof.verifier.jobs"),
    (SIDES, "data_plane.proof.verifier.jobs", "data_plane.proof.prover.device"),
    ("The challenger does not know the prover", "data_plane.proof.challenger.plan", "data_plane.proof.prover.device"),
    (NO_CIRCLE, "data_plane.proof.prover.device", "data_plane.agent.guard"),
    (NO_CIRCLE, "data_plane.access.port", "data_plane.mesh.port"),
    (NO_CIRCLE, "data_plane.proof.verifier.jobs", "data_plane.proof.verifier.service.codec"),
    (NO_CHEATS, "data_plane.simulation.line", "tests.support.cheats.line"),
    (NO_CHEATS, "reconciler.loop", "tests.support.cheats.lies"),
    (NO_CHEATS, "control_plane.world", "infra.config"),
    (INFRA, "infra.config", "control_plane.settings"),
    (INFRA, "infra.components.keys", "environment.reading"),
    ("What a deployment consists of is known without Pulumi", "infra.services", "pulumi"),
    (ALONE, "data_plane.agent.guard", "data_plane.inspection.bundle"),
    (ALONE, "data_plane.nvml.library", "grpc"),
    (ALONE, "data_plane.proof.prover.prover", "data_plane.proof.challenger.plan"),
    ("The verifier computes, and reaches nothing", "data_plane.proof.verifier.jobs", "data_plane.access.line"),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*OPTIONS["root_packages"], include_external_packages=True, cache_dir=None)


def _kept(contract: str, graph: grimp.ImportGraph) -> bool:
    (found,) = [one for one in OPTIONS["contracts"] if one["name"] == contract]
    options = {key: str(value) if isinstance(value, bool) else value for key, value in found.items()}
    session = {"root_packages": OPTIONS["root_packages"], "include_external_packages": "True"}
    return bool(KINDS[options["type"]](contract, session, options).check(graph, verbose=False).kept)


@pytest.mark.parametrize(("contract", "importer", "imported"), BREAKS)
def test_a_contract_is_broken_by_an_import_that_it_forbids(
    graph: grimp.ImportGraph, contract: str, importer: str, imported: str
) -> None:
    broken = deepcopy(graph)
    assert _kept(contract, deepcopy(graph))
    assert importer in broken.modules
    if imported not in broken.modules:
        broken.add_module(imported.partition(".")[0], is_squashed=True)
        imported = imported.partition(".")[0]
    broken.add_import(importer=importer, imported=imported)
    assert not _kept(contract, broken)


def test_a_new_folder_of_the_data_plane_must_have_its_place_in_the_layers(graph: grimp.ImportGraph) -> None:
    for contract, container in ((ONE_WAY, "data_plane"), (SIDES, "data_plane.proof")):
        grown = deepcopy(graph)
        grown.add_module(f"{container}.newcomer")
        assert not _kept(contract, grown)
