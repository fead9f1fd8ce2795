"""The disk that every local machine boots: a Debian root, built once and kept outside the checkout.

The folder is named by a hash of the recipe below, so a changed recipe builds a new root and an old
one is never half updated. It counts as built once a marker beside it says so, and only while its files
are those that the marker's hash was taken of. Machines boot it with an overlay in memory and never write to it.

It is built in two steps: debootstrap installs the base system, and apt inside it installs the rest.
debootstrap cannot resolve virtual packages, and cloud-init needs one
(`python3-cffi-backend-api-min`, by way of python3-cryptography). Packages come from where the host
gets its own: the build may use the host's mirrors, proxy, credentials and certificates, and none of
them stays in the image.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
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
    disabled: tuple[str, ...]
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
        "nftables",
        "python3",  # With the whole standard library, which the agent (a zipapp) needs.
        "python3-numpy",  # Emulated GPUs compute with it when they are challenged.
        "cloud-init",
        # What docs/installing.md installs, for the test that follows that page.
        "nginx-light",
        "openssl",
        "curl",
    ),
    enabled=("systemd-networkd.service", "ssh.service"),
    disabled=("nginx.service",),
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
MARKER = "complete.json"
"""Written last, beside the root: the hash of all files that were built."""
APT_SETTINGS_LENT = re.compile(r"^Acquire::(https?|Check-|Retries|ForceIPv|Languages)")


def image_path(cache: Path, recipe: Recipe = RECIPE) -> Path:
    return cache / recipe.digest() / "root"


def ensure_image(cache: Path, say: Say, recipe: Recipe = RECIPE, *, build: "Build | None" = None) -> Path:
    """The path of the image's root; builds it first if necessary, which takes about a minute and needs root.

    An image that is empty, or in which files are missing or have another size, is built again. `build` stands in for
    the real build in tests. Raises ImageBuildError.
    """
    root = image_path(cache, recipe)
    if fault(root) is None:
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with _only_builder(cache / f"{recipe.digest()}.lock", say):
        why = fault(root)  # Another process may have built it while this one waited.
        if why is not None:
            if root.parent.exists():
                say(f"the machine image {root.parent.name} cannot be used, because {why}; building it again")
            _install(recipe, root, say, build or _build)
    return root


def _install(recipe: Recipe, root: Path, say: Say, build: "Build") -> None:
    """Build beside the place of the image and move it there when it is complete."""
    final, work = root.parent, root.parent.with_suffix(".building")
    _remove_tree(work)
    work.mkdir()
    try:
        build(recipe, work / "root", final.with_suffix(".log"), say)
        (work / MARKER).write_text(json.dumps({"files": digest_of_files(work / "root")}))
        _remove_tree(final)
        work.rename(final)
    finally:
        _remove_tree(work)


def fault(root: Path) -> str | None:
    """Why the image cannot be used; None when it is as it was built."""
    try:
        recorded = json.loads((root.parent / MARKER).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return "its build was not finished"
    return None if digest_of_files(root) == recorded else "its files are not those that were built"


def digest_of_files(root: Path) -> str:
    """A hash of all names, kinds, modes, sizes and links below `root`. It takes about a second.

    The content is not read: a build that was interrupted, or a folder that was cleared, shows without it.
    """
    hashed = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = os.path.join(folder, name)  # noqa: PTH118 - 10,000 Path objects would take ten times as long
            status = os.lstat(path)
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""  # noqa: PTH115 - as above
            hashed.update(f"{os.path.relpath(path, root)}\0{status.st_mode:o}\0{size}\0{link}\n".encode())
    return hashed.hexdigest()


def remove_unfinished(cache: Path) -> None:
    """Remove what builds left that were killed. A build that runs is left alone."""
    for work in cache.glob("*.building"):
        with work.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove_tree(work)


@contextmanager
def _only_builder(path: Path, say: Say) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is building the machine image; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


Build = Callable[[Recipe, Path, Path, Say], None]
"""Fills a root, which does not exist yet, by a recipe, and writes a log."""


def _build(recipe: Recipe, root: Path, log: Path, say: Say) -> None:
    _Build(recipe, root, log, say).run()


class _Build:
    def __init__(self, recipe: Recipe, root: Path, log: Path, say: Say) -> None:
        self.recipe = recipe
        self.root = root
        self.log = log
        self.say = say
        self.started = time.monotonic()

    def run(self) -> None:
        self._line(f"building the machine image, once; log in {self.log}")
        self.log.write_text("")
        self._base()
        self._lend_apt_settings()
        self._packages()
        self._settle()
        self._line("machine image ready")

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
        self._step("services that are off", [*systemctl, "disable", *self.recipe.disabled])
        self._step("units that slow a boot", [*systemctl, "mask", *self.recipe.masked])

    def _step(self, name: str, command: list[str]) -> None:
        """Run one command in its own namespaces, so that nothing stays mounted and nothing runs on if it is killed."""
        self._line(name)
        private = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]
        private += ["--pid", "--fork", "--kill-child", "--mount-proc"]
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [*private, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                status = self._wait(name, process)
            finally:
                process.kill()
                process.wait()
        if status != 0:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ImageBuildError(f"{name} failed with status {status}; {self.log} ends with:\n{tail}")

    def _wait(self, name: str, process: "subprocess.Popen[bytes]") -> int:
        while True:
            try:
                return process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._line(f"{name}: still running")

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
