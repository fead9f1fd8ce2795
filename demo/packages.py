"""What this host lacks to run real machines and all tests, and the commands to install it."""

import shutil

from providers.emulators.nspawn import missing_requirements
from tests.support.cloud import engine
from tests.support.kubernetes import requirements

PROMTOOL = (
    "promtool is missing, which tests the alert rules. The first command keeps the server of its package from running",
    "ln -s /dev/null /etc/systemd/system/prometheus.service",
    "apt-get install --yes --no-install-recommends prometheus",
)


def missing() -> list[str]:
    """What is missing, one sentence each, and at the end the command. Empty if nothing is missing."""
    return missing_requirements()


def missing_for_tests() -> list[str]:
    """The same, with what only the tests need."""
    promtool = PROMTOOL if shutil.which("promtool") is None else ()
    return [*missing(), *promtool, *requirements.missing(), *engine.missing()]
