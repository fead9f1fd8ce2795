"""What a cluster of the demo is made of: K3s as the tests have it, which is the real programs behind a stand-in."""

import shutil
from pathlib import Path

from demo.processes import DemoError
from tests.support.golang.toolchain import expected_version
from tests.support.kubernetes import parts
from tests.support.kubernetes.k3s_machines import operators_files
from tests.support.kubernetes.k3s_release import K3sReleaseError
from tests.support.kubernetes.requirements import COMMAND, reasons


def missing() -> list[str]:
    """Why there is no cluster on this host, and the command that helps. Empty if there is one."""
    absent = reasons(nodes=True)
    if not absent:
        return []
    return [
        f"no cluster: {'; '.join(absent)}. {COMMAND} builds what it is made of, once, in about 12 minutes"
    ]


def programs() -> Path:
    """A folder with what machines need to become nodes."""
    return parts.parts(expected_version())


def make_files(folder: Path) -> None:
    """The files of a K3s release, as operators put them beside the reconciler. Raises DemoError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        operators_files(folder)
    except K3sReleaseError as error:
        raise DemoError(str(error)) from None
