"""Parts of scripts that both kinds of machines share: those in a private network, and members of an overlay."""

WANTED = "/etc/systemd/system/multi-user.target.wants"
"""A link there is what `systemctl enable` makes. Made by hand, systemd does not read all units anew, which takes a
tenth of a second on an idle machine, and seconds on a busy one."""
LACKS_PACKAGE = 68
"""The exit status of a machine whose image lacks a package, and that did not get it from its mirror."""

# The installation runs as a unit of its own, because killing dpkg midway breaks the machine. If it takes longer than
# the step, or the connection breaks, it goes on; the next try finds it done, or fails because it is still running.
# Arguments: the package, and the programs that it brings. Whether these are there counts, not what apt says of itself.
INSTALL_PACKAGE = f"""
install_package() {{
  package=$1
  shift
  exec 8> /run/lock/splitplane-install.lock
  flock -w 50 8 || true  # Another step installs a package of its own.
  timeout 50 systemd-run --quiet --collect --wait --unit=splitplane-install --property=RuntimeMaxSec=900 \\
    --setenv=DEBIAN_FRONTEND=noninteractive sh -c "apt-get -q update
      apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $package" </dev/null >&2 || true
  for program; do
    command -v "$program" >/dev/null || {{
      journalctl --no-pager --output cat --lines 4 --unit splitplane-install >&2 || true
      echo "this machine lacks $package, and could not install it: choose an image that has it" >&2
      exit {LACKS_PACKAGE}
    }}
  done
  exec 8>&-
}}
"""

# wireguard-go is needed only where the kernel has no WireGuard: in containers, and in kernels without the module. The
# only reliable test is to try, since a list of modules tells nothing about built-in or forbidden ones.
WIREGUARD_TOOLS = (
    INSTALL_PACKAGE
    + """
kernel_can() {
  ip link add dev "wgtry$$" type wireguard 2>/dev/null && ip link del dev "wgtry$$"
}
command -v wg >/dev/null && command -v wg-quick >/dev/null || install_package wireguard-tools wg wg-quick
command -v wireguard-go >/dev/null || kernel_can || install_package wireguard-go wireguard-go
"""
)

# Makes the private key in the file $key unless there is one, and prints its public key.
MAKE_KEY = """
mkdir -p /etc/wireguard
if [ ! -s "$key" ]; then
  new=$(mktemp "$key.XXXXXX")
  trap 'rm -f "$new"' EXIT
  wg genkey > "$new"
  # `ln` never replaces a file: if two replicas get here at the same time, the first one's key stays.
  [ ! -e "$key" ] || [ -s "$key" ] || rm -f "$key"
  ln "$new" "$key" 2>/dev/null || [ -s "$key" ]
fi
wg pubkey < "$key"
"""
