"""A real shell parses the scripts that we run on machines and hubs."""

import subprocess

import pytest

from data_plane.access.customer import ADMIT_CUSTOMER, END_CUSTOMER
from data_plane.access.login import CLOSE_OTHER_LOGINS, TRUST_AUTHORITIES
from data_plane.access.revocation import REVOKE
from data_plane.access.step import Step
from data_plane.cluster import agent_scripts, files, server_scripts
from data_plane.heartbeats import scripts as heartbeat_scripts
from data_plane.inspection.agent import FIND_AGENT, PUSH_AGENT
from data_plane.inspection.agent_service import INSTALL_AGENT, REMOVE_AGENT
from data_plane.inspection.gpus import RUN_AGENT
from data_plane.inspection.health import READ_HEALTH
from data_plane.mesh import hub_scripts, node_scripts
from data_plane.mesh.machine import JOIN_MESH, MESH_KEY, WARM_MESH
from data_plane.proof.challenger.prover_line import PROVE

STEPS = (
    *(
        ADMIT_CUSTOMER,
        END_CUSTOMER,
        TRUST_AUTHORITIES,
        CLOSE_OTHER_LOGINS,
        REVOKE,
        MESH_KEY,
        WARM_MESH,
        JOIN_MESH,
        FIND_AGENT,
        PUSH_AGENT,
        RUN_AGENT,
        READ_HEALTH,
        PROVE,
    ),
    *(INSTALL_AGENT, REMOVE_AGENT),
    *(heartbeat_scripts.PUSH_COLLECTOR, heartbeat_scripts.EXCHANGE, heartbeat_scripts.REMOVE_COLLECTOR),
    *(hub_scripts.SYNC, hub_scripts.DROP),
    *(files.FIND, files.PUT, files.CHECK),
    *(server_scripts.INSTALL, server_scripts.AWAIT_NODE, server_scripts.READ, server_scripts.DISMANTLE),
    *(agent_scripts.PREPARE, agent_scripts.START, agent_scripts.DROP_TOKEN),
    *(agent_scripts.STOP, agent_scripts.CLEAN, agent_scripts.LOOK),
    *(
        node_scripts.MAKE_NODE_KEY,
        node_scripts.MAKE_NEXT_KEY,
        node_scripts.APPLY_PEERS,
        node_scripts.READ_PEERS,
        node_scripts.SWITCH_KEY,
        node_scripts.LEAVE_OVERLAY,
        node_scripts.PROBE_PATH,
    ),
)
SCRIPTS = {**{step.name: step.script for step in STEPS}, "bring a hub's network up": hub_scripts.UP}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_sh(name: str) -> None:
    read = subprocess.run(["sh", "-n"], input=SCRIPTS[name].encode(), capture_output=True, check=False)
    assert (read.returncode, read.stderr) == (0, b"")


def test_arguments_cannot_leave_their_quotes() -> None:
    step = Step("say", 'printf %s "$1"', seconds=5, user="login")
    nasty = "'; touch /tmp/x; $(id) \"`"
    done = subprocess.run(["sh", "-c", step.command([nasty])], capture_output=True, check=True)
    assert done.stdout.decode() == nasty
