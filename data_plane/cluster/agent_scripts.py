"""The scripts that run on a rented machine to make it a node, and to take everything of a node off it again.

Nothing here is secret but the bootstrap token, which comes by standard input and is kept in memory (`/run`), where a
restart of the machine removes it together with the setting that names it.
"""

from data_plane.access.step import Step
from data_plane.access.turns import alone
from data_plane.cluster.files import FOLDER
from data_plane.cluster.objects.node import JOINING
from data_plane.cluster.shell import (
    BINARY,
    CONFIG,
    IMAGES,
    KERNEL_SETTINGS,
    KUBELET_ARGUMENTS,
    PLACING,
    SETTINGS,
    SETTINGS_BEFORE,
    SETTINGS_FILE,
)
from data_plane.documents.agent_config import POD_ADDRESSES
from data_plane.inspection.agent_service import BELONGINGS
from data_plane.mesh.node_scripts import TABLE as ROUTING_TABLE
from data_plane.mesh.pod_filter import INTERFACE
from data_plane.mesh.pod_filter import TABLE as FILTER_TABLE

UNIT = "k3s-agent.service"
INSTALLER = f"{FOLDER}/install.sh"
"""A name of its own, beside the digest under which it was sent, by which `START` finds it."""
TOKEN_FOLDER = "/run/splitplane-k3s"  # noqa: S105 - a path, not a token
TOKEN_SETTING = f"/run/systemd/system/{UNIT}.d"
JOIN_SECONDS = 60
PASSWORD_REJECTED = 78
"""The exit status of `START` when the cluster knows another password for the node's name."""
MOUNTS_OF_NODES = ("/run/k3s", "/run/netns/cni-", "/var/lib/kubelet", "/var/lib/rancher/")
"""Mounts that begin so are a node's. The folder /var/lib/rancher itself may be a disk of the machine's."""
LINKS = "cni0 flannel.1 flannel-v6.1 flannel-wg flannel-wg-v6 kube-ipvs0"
FILES = (
    *("/etc/rancher", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers"),
    *("/run/k3s", "/run/flannel", TOKEN_FOLDER, TOKEN_SETTING),
    *(BINARY, f"{BINARY}.new", "/usr/local/bin/k3s-killall.sh", "/usr/local/bin/k3s-agent-uninstall.sh"),
    *(f"/etc/systemd/system/{UNIT}", f"/etc/systemd/system/{UNIT}.env"),
    *(f"/etc/systemd/system/multi-user.target.wants/{UNIT}", f"/etc/systemd/system/{UNIT}.d"),
    *("/run/containerd/runc/k8s.io", FOLDER),
)
TOOLS = ("kubectl", "crictl", "ctr")
"""Links to K3s beside its binary."""
LEFT_MAX = 200
"""So many things that are left are named."""

# Two replicas of the reconciler may come at the same time.
_ALONE = alone("/run/lock/splitplane-k3s.lock", "change of this node", 20)

# Arguments: the digests of k3s and install.sh, then name and digest of each archive of images. Prints what is there:
# `kernel RELEASE`, `file DIGEST NAME`, `setting NAME VALUE`, `module NAME`, a line each.
PREPARE = Step(
    "prepare node",
    f"""set -eu
umask 077
{_ALONE}{SETTINGS}{PLACING}
binary=$1
installer=$2
shift 2
put_settings
place_binary "$binary"
place_images "$@"
cmp -s "{FOLDER}/$installer" {INSTALLER} || cp -f "{FOLDER}/$installer" {INSTALLER}
# They may be built in or forbidden; K3s loads them too, and fails by itself where it cannot do without one.
for module in br_netfilter nf_conntrack overlay; do
  modprobe -q "$module" 2>/dev/null || true
done
printf 'kernel %s\\n' "$(uname -r)"
digest() {{
  printf 'file %s %s\\n' "$(sha256sum < "$1" | cut -c 1-64)" "$2"
}}
digest {BINARY} k3s
digest {INSTALLER} install.sh
while [ $# -ge 2 ]; do digest "{IMAGES}/$1" "$1"; shift 2; done
for name in {" ".join(KERNEL_SETTINGS)}; do printf 'setting %s %s\\n' "$name" "$(read_setting "$name")"; done
for module in br_netfilter nf_conntrack overlay; do
  [ ! -d "/sys/module/$module" ] || printf 'module %s\\n' "$module"
done
""",
    seconds=180,
    user="root",
)

# The lines that name the token's file are in memory as well, so that an agent that has joined does not wait for a token
# after a restart of the machine: K3s waits minutes for a file that is named and not there. Nothing is told to the
# install script by K3S_ variables, because it would keep them on the disk.
_PUT_TOKEN = f"""
has_token() {{
  [ "$(cat {TOKEN_FOLDER}/token 2>/dev/null)" = "$token" ] && [ -e {TOKEN_SETTING}/token.conf ]
}}
put_token() {{
  mkdir -p {TOKEN_FOLDER} {TOKEN_SETTING}
  printf '%s\\n' "$token" > {TOKEN_FOLDER}/token
  printf '[Service]\\nEnvironment=K3S_TOKEN_FILE={TOKEN_FOLDER}/token\\n' > {TOKEN_SETTING}/token.conf
}}
"""

DROP = f"""
drop_token() {{
  [ -e {TOKEN_FOLDER} ] || [ -e {TOKEN_SETTING} ] || return 0
  rm -rf {TOKEN_FOLDER} {TOKEN_SETTING}
  systemctl daemon-reload
}}
"""

# Arguments: the node's name, its address in the overlay, the URL of the server, then its labels as NAME=VALUE. Input:
# the bootstrap token. Prints the version of K3s. systemd calls the agent active once its Node is registered (K3s 1.36,
# pkg/agent/run.go). What an agent logged before is no answer to this start, so the journal is read from a cursor on.
START = Step(
    "start agent",
    f"""set -eu
umask 077
node=$1
address=$2
server=$3
shift 3
read -r token
[ -x {BINARY} ] && [ -s {INSTALLER} ] || {{ echo 'this machine is not prepared' >&2; exit 66; }}
ip -4 -o address show dev {INTERFACE} 2>/dev/null | grep -qF " $address/" || {{
  echo "this machine does not have the address $address" >&2
  exit 66
}}
{_ALONE}{_PUT_TOKEN}
state() {{
  systemctl show --property=ActiveState --value {UNIT}
}}
mkdir -p /etc/rancher/k3s
# The folder in which our agent looks for the addresses of pods. Otherwise the first to need it decides who may list it:
# CNI's plugin lets everybody, and the library that calls the plugin nobody (libcni/api.go, cacheAdd).
install -d -m 755 /var/lib/cni /var/lib/cni/networks {POD_ADDRESSES}
new=$(mktemp {CONFIG}.XXXXXX)
trap 'rm -f "$new"' EXIT
cat > "$new" <<END
server: "$server"
node-name: "$node"
node-ip: "$address"
flannel-iface: "{INTERFACE}"
node-taint: ["{JOINING}=true:NoSchedule"]
protect-kernel-defaults: true
END
[ $# -eq 0 ] || {{
  echo 'node-label:'
  printf '  - "%s"\\n' "$@"
}} >> "$new"
{KUBELET_ARGUMENTS}
cursor=
mark() {{
  cursor=$(journalctl --lines 0 --show-cursor 2>/dev/null | sed -n 's/^-- cursor: //p')
}}
said() {{
  journalctl --no-pager --output cat ${{cursor:+"--after-cursor=$cursor"}} --unit {UNIT} 2>/dev/null || true
}}
mark
if ! cmp -s "$new" {CONFIG} || {{ [ "$(state)" != active ] && ! {{ [ "$(state)" = activating ] && has_token; }}; }}
then
  mv -f "$new" {CONFIG}
  put_token
  INSTALL_K3S_SKIP_DOWNLOAD=true INSTALL_K3S_EXEC=agent INSTALL_K3S_SKIP_START=true sh {INSTALLER} >&2
  systemctl daemon-reload
  systemctl stop {UNIT}
  systemctl reset-failed {UNIT} 2>/dev/null || true
  mark
  systemctl start --no-block {UNIT}
fi
end=$(($(date +%s) + {JOIN_SECONDS}))
until [ "$(state)" = active ]; do
  case $(said) in
    *'Node password rejected'*)
      echo 'the cluster knows another password for this name: the machine was rebuilt, or another has the name' >&2
      exit {PASSWORD_REJECTED}
      ;;
  esac
  [ "$(date +%s)" -lt "$end" ] || {{
    said | tail -n 8 >&2
    echo 'the agent has not joined after {JOIN_SECONDS} s' >&2
    exit 70
  }}
  sleep 0.5
done
k3s --version | sed -n '1s/^k3s version \\([^ ]*\\).*/\\1/p'
""",
    seconds=JOIN_SECONDS + 60,
    user="root",
)

DROP_TOKEN = Step(
    "drop token",
    f"set -eu\n{_ALONE}{DROP}\ndrop_token\n",
    seconds=30,
    user="root",
)

# K3s' own script ends what it knows; what is in the pods' control groups or runs a program of K3s' ends in any case.
_PROCESSES = f"""
processes() {{
  {{
    grep -lE 'kubepods|/{UNIT.replace(".", "[.]")}' /proc/[0-9]*/cgroup 2>/dev/null
    find /proc/[0-9]* -maxdepth 1 -name exe \\( -lname '/var/lib/rancher/*' -o -lname '{BINARY}*' \\) 2>/dev/null
  }} | cut -d / -f 3 | sort -un
}}
"""
_MOUNTS = f"""
mounts() {{
  awk '$2 ~ "^({"|".join(MOUNTS_OF_NODES)})" {{ print $2 }}' /proc/self/mounts | sort -r
}}
"""
# The shims of every containerd have theirs in one folder, and the machine's owner may run another containerd.
_SOCKETS = """
dead_sockets() {
  for socket in /run/containerd/s/*; do
    [ ! -S "$socket" ] || grep -qF "$socket" /proc/net/unix || echo "$socket"
  done
}
"""
_CHAINS = "KUBE-|CNI-|FLANNEL|flannel"
_STOP = f"""
end_pods() {{
  systemctl stop {UNIT} 2>/dev/null || true
  [ ! -x /usr/local/bin/k3s-killall.sh ] || /usr/local/bin/k3s-killall.sh >/dev/null 2>&1 || true
  for round in 1 2 3 4 5; do
    left=$(processes)
    [ -n "$left" ] || break
    kill -KILL $left 2>/dev/null || true
    sleep 0.2
  done
  mounts | while read -r path; do
    path=$(printf '%b' "$path")
    umount "$path" 2>/dev/null || umount -l "$path" 2>/dev/null || true
  done
  ip netns show 2>/dev/null | awk '/^cni-/ {{ print $1 }}' | xargs -r -n 1 ip netns delete || true
  for link in {LINKS}; do ip link delete "$link" 2>/dev/null || true; done
}}
"""

STOP = Step(
    "stop agent",
    f"""set -eu
{_ALONE}{DROP}{_PROCESSES}{_MOUNTS}{_STOP}
end_pods
systemctl disable --quiet {UNIT} 2>/dev/null || true
drop_token
[ -z "$(processes)" ] || {{ echo 'processes of the node still run' >&2; exit 70; }}
""",
    seconds=150,
    user="root",
)

# Nothing here ends the step but a lock that is held: `LOOK` says what could not be removed. K3s brings its own tools
# for packet filters, which are there until its data is removed.
CLEAN = Step(
    "clean node",
    f"""set -u
{_ALONE}{DROP}{SETTINGS}{_PROCESSES}{_MOUNTS}{_SOCKETS}{_STOP}
for folder in /var/lib/rancher/k3s/data/*/bin; do
  [ ! -d "$folder" ] || PATH=$PATH:$folder:$folder/aux
done
end_pods
for tables in iptables ip6tables; do
  rules=$("$tables-save" 2>/dev/null) || continue
  case $rules in
    *KUBE-* | *CNI-* | *FLANNEL* | *flannel*)
      printf '%s\\n' "$rules" | grep -vE '{_CHAINS}' | "$tables-restore" || true
      ;;
  esac
done
for name in $(ipset list -n 2>/dev/null | grep -E '^(inet6:)?KUBE-'); do ipset destroy "$name" || true; done
[ ! -x /usr/local/bin/k3s-agent-uninstall.sh ] || /usr/local/bin/k3s-agent-uninstall.sh >/dev/null 2>&1 || true
systemctl disable --quiet {UNIT} 2>/dev/null || true
drop_token
# What is still mounted below one of these may be somebody's volume. And /var/lib/rancher may be a disk of the
# machine's, whose folder cannot be removed.
for path in {" ".join(FILES)}; do rm -rf --one-file-system "$path"; done
rm -rf --one-file-system /var/lib/rancher/* /var/lib/rancher 2>/dev/null || true
for tool in {" ".join(TOOLS)}; do
  [ "$(readlink "/usr/local/bin/$tool" 2>/dev/null)" != k3s ] || rm -f "/usr/local/bin/$tool"
done
find /sys/fs/cgroup -depth -type d \\( -path '*/kubepods*' -o -name '{UNIT}' \\) -exec rmdir {{}} + 2>/dev/null
dead_sockets | xargs -r rm -f
restore_settings
for folder in /run/containerd/runc /run/containerd/s /run/containerd /run/netns /var/lib/splitplane; do
  rmdir "$folder" 2>/dev/null || true
done
systemctl daemon-reload
systemctl reset-failed {UNIT} 2>/dev/null || true
exit 0
""",
    seconds=180,
    user="root",
)

# Prints `looked KIND` for each kind of things that was looked for, and `left KIND NAME` for each thing that was found.
LOOK = Step(
    "look for what is left",
    f"""set -u
{_PROCESSES}{_MOUNTS}{_SOCKETS}
kind() {{
  kind=$1
  echo "looked $kind"
}}
left() {{
  while read -r found; do [ -z "$found" ] || printf 'left %s %s\\n' "$kind" "$found"; done
}}
{{
  kind process
  for process in $(processes); do
    printf '%s %s\\n' "$process" "$(tr '\\0' ' ' < "/proc/$process/cmdline" 2>/dev/null | cut -c 1-100)"
  done | left
  kind unit
  systemctl list-units --all --no-legend --plain 'k3s*' 'splitplane-agent*' 2>/dev/null | awk '{{ print $1 }}' | left
  kind mount
  mounts | left
  kind namespace
  ip netns show 2>/dev/null | awk '/^cni-/ {{ print $1 }}' | left
  kind link
  for link in {LINKS} {INTERFACE}; do
    ! ip link show dev "$link" >/dev/null 2>&1 || echo "$link"
  done | left
  kind route
  ip route show table {ROUTING_TABLE} 2>/dev/null | left
  ip rule show priority {ROUTING_TABLE} 2>/dev/null | left
  kind nftables
  nft list tables 2>/dev/null | grep -Fx 'table {FILTER_TABLE}' | left
  for tables in iptables ip6tables; do
    rules=$("$tables-save" 2>/dev/null) || continue
    kind "$tables"
    printf '%s\\n' "$rules" | grep -E '{_CHAINS}' | left
  done
  if command -v ipset >/dev/null; then
    kind ipset
    ipset list -n 2>/dev/null | grep -E '^(inet6:)?KUBE-' | left
  fi
  kind file
  for path in {" ".join(FILES)} {SETTINGS_FILE} {SETTINGS_BEFORE} /etc/wireguard/{INTERFACE}.* \\
    /var/lib/rancher/* /run/netns/cni-* {" ".join(BELONGINGS)}; do
    [ ! -e "$path" ] || echo "$path"
  done | left
  dead_sockets | left
  for tool in {" ".join(TOOLS)}; do
    [ "$(readlink "/usr/local/bin/$tool" 2>/dev/null)" != k3s ] || echo "/usr/local/bin/$tool"
  done | left
  kind cgroup
  find /sys/fs/cgroup -type d \\( -path '*/kubepods*' -o -name '{UNIT}' \\) 2>/dev/null | left
}} | head -n {LEFT_MAX}
""",
    seconds=60,
    user="root",
)
