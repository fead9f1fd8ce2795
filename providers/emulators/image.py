"""The disk that every local machine boots: a Debian root, built once and kept outside the checkout.

The folder is named by a hash of the recipe below, so a changed recipe builds a new root and an old
one is never half updated. Machines boot it with an overlay in memory and never write to it.

It is built in two steps: debootstrap installs the base system, and apt inside it installs the rest.
debootstrap cannot resolve virtual packages, and cloud-init needs one
(`python3-cffi-backend-api-min`, by way of python3-cryptography). Packages come from where the host
gets its own: the build may use the host's mirrors, proxy, credentials and certificates, and none of
them stays in the image.
"""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

Say = Callable[[str], None]
"""Shows one line of progress to the user."""


class ImageBuildError(Exception):
    """The image could not be built. The text contains the end of the build log."""


@dataclass(frozen=True, slots=True)
class Recipe:
    suite: str
    packages: tuple[str, ...]
    enabled: tuple[str, ...]
    masked: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    """Path in the root, and text."""
    revision: int
    """Raise it when a change to this module changes the root and none of the fields above."""

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


CLOUD_CONFIG = """\
# One source, so that cloud-init looks for no other cloud.
datasource_list: [NoCloud]
# Generating a locale takes seconds and nobody reads it.
locale: false
system_info:
  network:
    # The netplan renderer calls udevadm, which a machine without udev does not have.
    renderers: [networkd]
"""

SSHD_CONFIG = """\
# Cloud images allow no passwords. Were it not said here, user data with `ssh_pwauth: false` would
# make cloud-init change this file and restart an sshd that already answers.
PasswordAuthentication no
"""

RECIPE = Recipe(
    suite="bookworm",
    packages=(
        "systemd",
        "systemd-sysv",
        "dbus",
        "libnss-myhostname",  # Without it, sudo warns that it cannot resolve the host's name.
        "openssh-server",
        "sudo",
        "iproute2",
        "iputils-ping",
        "wireguard-tools",
        "wireguard-go",
        "python3",  # With the whole standard library, which the agent (a zipapp) needs.
        "python3-numpy",  # Emulated GPUs compute with it when they are challenged.
        "cloud-init",
    ),
    enabled=("systemd-networkd.service", "ssh.service"),
    masked=(
        "systemd-networkd-wait-online.service",  # It took 13 of the 15 s of a boot.
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "man-db.timer",
        "e2scrub_all.timer",
        "e2scrub_reap.service",
        "fstrim.timer",
        "getty@.service",
        "console-getty.service",
    ),
    files=(
        ("etc/cloud/cloud.cfg.d/90_local_cloud.cfg", CLOUD_CONFIG),
        ("etc/ssh/sshd_config.d/50-cloud-init.conf", SSHD_CONFIG),
    ),
    revision=1,
)

REMOVED = (
    "etc/ssh/ssh_host_*",  # A machine has only the host keys in its user data.
    "etc/hostname",
    "etc/resolv.conf",
    "var/lib/dbus/machine-id",
    "usr/sbin/policy-rc.d",
    "etc/apt/auth.conf.d/*",
    "tmp/*",
    "var/lib/apt/lists/*",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*.deb",
    "var/log/*.log",
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/locale/*",
)

HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
APT_SETTINGS_LENT = re.compile(r"^Acquire::(https?|Check-|Retries|ForceIPv|Languages)")


def image_path(cache: Path, recipe: Recipe = RECIPE) -> Path:
    return cache / recipe.digest() / "root"


def ensure_image(cache: Path, say: Say, recipe: Recipe = RECIPE) -> Path:
    """The path of the image's root; builds it first if necessary, which takes about a minute and needs root.

    Raises ImageBuildError.
    """
    root = image_path(cache, recipe)
    if root.exists():
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with _only_builder(cache / f"{recipe.digest()}.lock", say):
        if not root.exists():  # Another process may have built it while this one waited.
            _Build(recipe, root, say).run()
    return root


@contextmanager
def _only_builder(path: Path, say: Say) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is building the machine image; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Build:
    def __init__(self, recipe: Recipe, root: Path, say: Say) -> None:
        self.recipe = recipe
        self.final = root.parent
        self.work = root.parent.with_suffix(".building")
        self.root = self.work / "root"
        self.log = root.parent.with_suffix(".log")
        self.say = say
        self.started = time.monotonic()

    def run(self) -> None:
        self._line(f"building the machine image {self.final.name}, once; log in {self.log}")
        self.log.write_text("")
        _remove_tree(self.work)
        self.work.mkdir()
        try:
            self._base()
            self._lend_apt_settings()
            self._packages()
            self._settle()
            self.work.rename(self.final)
        finally:
            _remove_tree(self.work)
        self._line(f"machine image ready in {self.final}")

    def _base(self) -> None:
        mirrors = host_mirrors(self.recipe.suite)
        command = ["debootstrap", "--variant=minbase", self.recipe.suite, str(self.root)]
        self._step("base system by debootstrap", [*command, *[mirror for mirror, _ in mirrors[:1]]])
        if mirrors:
            lines = [f"deb {mirror} {release} main\n" for mirror, release in mirrors]
            (self.root / "etc/apt/sources.list").write_text("".join(lines))

    def _lend_apt_settings(self) -> None:
        lent = self.root / "tmp/apt"
        lent.mkdir()
        lines = [line for line in _host_apt_config() if APT_SETTINGS_LENT.match(line)]
        own = [line for line in lines if line.startswith("Acquire::https::CaInfo ")]
        bundle = Path(own[0].split('"')[1]) if own else HOST_CERTIFICATES
        if bundle.is_file():
            shutil.copy(bundle, lent / "certificates.crt")
            lines.append('Acquire::https::CaInfo "/tmp/apt/certificates.crt";')
        (lent / "apt.conf").write_text("\n".join(lines) + "\n")
        for credentials in Path("/etc/apt/auth.conf.d").glob("*.conf"):
            shutil.copy(credentials, self.root / "etc/apt/auth.conf.d")
        policy = self.root / "usr/sbin/policy-rc.d"
        policy.write_text(
            "#!/bin/sh\nexit 101\n"
        )  # So that packages start no service while the root is being built.
        policy.chmod(0o755)

    def _packages(self) -> None:
        install = ["apt-get", "install", "--yes", "--no-install-recommends", *self.recipe.packages]
        self._step("package lists", self._inside(["apt-get", "update"]))
        self._step(f"{len(self.recipe.packages)} packages and what they need", self._inside(install))

    def _inside(self, command: list[str]) -> list[str]:
        settings = ["APT_CONFIG=/tmp/apt/apt.conf", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]
        return [
            *("unshare", "--pid", "--fork", "--kill-child", f"--root={self.root}", "--mount-proc"),
            *("env", *settings, *command),
        ]

    def _settle(self) -> None:
        for pattern in REMOVED:
            for path in self.root.glob(pattern):
                _remove_tree(path)
        for name, text in self.recipe.files:
            (self.root / name).write_text(text)
        # Empty, not missing: a missing one makes systemd treat every boot as the first.
        (self.root / "etc/machine-id").write_text("")
        systemctl = ["systemctl", f"--root={self.root}"]
        self._step("services", [*systemctl, "enable", *self.recipe.enabled])
        self._step("units that slow a boot", [*systemctl, "mask", *self.recipe.masked])

    def _step(self, name: str, command: list[str]) -> None:
        """Run one command in its own mount namespace, so that nothing stays mounted if it is killed."""
        self._line(name)
        private = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [*private, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            while True:
                try:
                    status = process.wait(timeout=10)
                    break
                except subprocess.TimeoutExpired:
                    self._line(f"{name}: still running")
        if status != 0:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ImageBuildError(f"{name} failed with status {status}; {self.log} ends with:\n{tail}")

    def _line(self, text: str) -> None:
        self.say(f"[{time.monotonic() - self.started:3.0f} s] {text}")


def host_mirrors(suite: str) -> list[tuple[str, str]]:
    """(URL, release) of the Debian archives that this host uses for `suite`, the main archive first.

    Empty on a host without any, such as another distribution; debootstrap then uses its default.
    """
    fields = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)"
    listed = _output(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"])
    wanted = (suite, f"{suite}-updates", f"{suite}-security")
    found = []
    for line in listed:
        address, release, component, origin = line.split("|")
        # Before the first `apt-get update`, apt does not know the origin and prints the placeholder.
        if release in wanted and component == "main" and origin in ("Debian", "$(ORIGIN)"):
            found.append((address, release))
    found.sort(key=lambda mirror: wanted.index(mirror[1]))
    return found if found and found[0][1] == suite else []


def _host_apt_config() -> list[str]:
    return _output(["apt-config", "dump"])


def _output(command: list[str]) -> list[str]:
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:  # The host is not of the Debian family.
        return []
    return answer.stdout.splitlines()


def _remove_tree(path: Path) -> None:
    # Unlike shutil.rmtree, this does not descend into what may be mounted below.
    subprocess.run(["rm", "-rf", "--one-file-system", str(path)], check=True)
