"""The scripts that run on a server host. Secrets come by standard input, never by arguments."""

from data_plane.access.step import Step
from data_plane.access.turns import alone, fenced
from data_plane.cluster.files import FOLDER
from data_plane.cluster.shell import BINARY, CONFIG, KUBELET_ARGUMENTS, PLACING, SETTINGS

API_PORT = 6_443
FENCE = "/var/lib/splitplane/server.fence"
"""The highest fence that the host has seen. It stays when the server is dismantled."""
WAIT_SECONDS = 290
"""For the longest step of a worker whose process is gone."""

# Takes `$fence` from the arguments. What a late worker brings is refused, and two workers take turns.
_IN_TURN = f"""
fence=$1
shift
{alone("/run/lock/splitplane-k3s.lock", "change of this host", WAIT_SECONDS)}mkdir -p "$(dirname {FENCE})"
{fenced(FENCE, "a later worker has changed this host")}keep_fence "$fence"
"""
# Argument of each: the fence, before all others.
TAKE = Step("take host", f"set -eu\n{_IN_TURN}", seconds=WAIT_SECONDS + 20, user="root")

# Arguments, after the fence: the address at which nodes and customers reach the host, the name in its certificate, its
# address in the overlay, the overlay's interface, the ranges of pods and services, the digests of k3s and install.sh,
# then name and digest of each archive of images. Input: the credential of servers, and that of agents, a line each.
# With `cluster-init`, K3s uses its embedded etcd, otherwise SQLite (https://docs.k3s.io/datastore, 2026-11-23).
INSTALL = Step(
    "install server",
    f"""set -eu
umask 077
{_IN_TURN}
outside=$1
server_name=$2
address=$3
interface=$4
pods=$5
services=$6
binary=$7
installer={FOLDER}/$8
shift 8
read -r token
read -r agent_token
{SETTINGS}{PLACING}
put_settings
mkdir -p /etc/rancher/k3s
place_images "$@"
new=$(mktemp {CONFIG}.XXXXXX)
trap 'rm -f "$new"' EXIT
cat > "$new" <<END
cluster-init: true
token: "$token"
agent-token: "$agent_token"
node-ip: "$address"
advertise-address: "$address"
flannel-iface: "$interface"
tls-san:
  - "$address"
  - "$outside"
  - "$server_name"
cluster-cidr: "$pods"
service-cidr: "$services"
disable: [traefik, servicelb, metrics-server, local-storage]
node-taint: ["node-role.kubernetes.io/control-plane=true:NoSchedule"]
secrets-encryption: true
protect-kernel-defaults: true
write-kubeconfig-mode: "0600"
END
{KUBELET_ARGUMENTS}changed=false
cmp -s "$new" {CONFIG} || {{ mv -f "$new" {CONFIG}; changed=true; }}
place_binary "$binary"
if $changed || ! systemctl is-active --quiet k3s; then
  INSTALL_K3S_SKIP_DOWNLOAD=true INSTALL_K3S_EXEC=server INSTALL_K3S_FORCE_RESTART=true sh "$installer" >&2
fi
end=$(($(date +%s) + 120))
until k3s kubectl get --raw /readyz >/dev/null 2>&1; do
  [ "$(date +%s)" -lt "$end" ] || {{
    journalctl --no-pager --output cat --lines 8 --unit k3s >&2 || true
    echo 'the API server is not ready after 120 s' >&2
    exit 70
  }}
  sleep 1
done
""",
    seconds=WAIT_SECONDS + 300,
    user="root",
)

# The server's own Node registers some time after the API server is ready, when the images have been read. Our admission
# rules, which follow soon, would refuse it. Argument: how long to wait, in seconds.
AWAIT_NODE = Step(
    "await the server's node",
    """set -eu
end=$(($(date +%s) + $1))
until k3s kubectl get nodes --output name 2>/dev/null | grep -qvE '^node/node-[0-9a-f]{32}$'; do # Ours are called so.
  [ "$(date +%s)" -lt "$end" ] || {
    journalctl --no-pager --output cat --lines 8 --unit k3s >&2 || true
    echo "the server has not registered its own Node after $1 s" >&2
    exit 70
  }
  sleep 1
done
""",
    seconds=150,
    user="root",
)

# Prints the version, then the certificate authority and the administrator's kubeconfig in base64, a line each.
READ = Step(
    "read server",
    """set -eu
k3s --version | sed -n '1s/^k3s version \\([^ ]*\\).*/\\1/p'
base64 -w 0 /var/lib/rancher/k3s/server/tls/server-ca.crt
echo
base64 -w 0 /etc/rancher/k3s/k3s.yaml
echo
""",
    seconds=20,
    user="root",
)

DISMANTLE = Step(
    "dismantle server",
    f"""set -eu
{_IN_TURN}{SETTINGS}
if [ -x /usr/local/bin/k3s-uninstall.sh ]; then
  /usr/local/bin/k3s-uninstall.sh >&2
fi
# A disk may be mounted there, whose folder cannot be removed.
rm -rf /var/lib/rancher 2>/dev/null || [ -z "$(ls -A /var/lib/rancher)" ] || {{
  echo '/var/lib/rancher is not empty' >&2
  exit 70
}}
restore_settings
rm -rf /etc/rancher {FOLDER}
! systemctl is-active --quiet k3s || {{ echo 'k3s still runs' >&2; exit 70; }}
[ ! -e {BINARY} ] || {{ echo 'k3s is still installed' >&2; exit 70; }}
""",
    seconds=WAIT_SECONDS + 180,
    user="root",
)
