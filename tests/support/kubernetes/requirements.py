"""What a machine lacks to run the tests of clusters, as a person and as a test reads it."""

from providers.emulators.nspawn import missing_requirements
from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes.binaries import (
    COLLECTION,
    CONTAINER,
    CONTROL_PLANE,
    NETWORK_POLICIES,
    NODE,
    missing_packages,
)

OF_NODES = (*NODE, CONTAINER, NETWORK_POLICIES)
COMMAND = "make kubernetes"
DAEMONS = ("etcd", "containerd")
"""Services of the packages, which must not run: the tests start the programs themselves."""


def missing() -> list[str]:
    """What the tests of clusters lack on this machine: a sentence and the commands for each. Empty if nothing."""
    sentences = []
    packages = missing_packages()
    if packages:
        sentences += [
            "packages for the tests of clusters are missing. The first command keeps their services from running",
            *(f"ln -s /dev/null /etc/systemd/system/{name}.service" for name in DAEMONS),
            f"apt-get install --yes --no-install-recommends {' '.join(packages)}",
        ]
    names = [binary.name for binary in COLLECTION.unbuilt(expected_version())]
    if names:
        left_out = f"the tests of clusters are left out: these programs are not built: {', '.join(names)}"
        sentences += [f"{left_out}. This builds them, once, in about 12 minutes on two cores", COMMAND]
    return sentences


def reasons(*, nodes: bool) -> list[str]:
    """Why tests cannot run: only what they themselves need counts, so that they run while the rest is being built."""
    absent = {binary.name for binary in COLLECTION.unbuilt(expected_version())}
    needed = {binary.name for binary in ((*CONTROL_PLANE, *OF_NODES) if nodes else CONTROL_PLANE)}
    packages = missing_packages() if nodes else [name for name in missing_packages() if name == "etcd-server"]
    found = [f"{name} is not built: {COMMAND}" for name in sorted(absent & needed)]
    found += [f"the package {name} is missing: python -m demo packages" for name in packages]
    return found + (missing_requirements() if nodes else [])
