#!/bin/sh
# Installs the stand-in for K3s as K3s' own script installs K3s: the same variables, files, units and exit codes.
# It downloads nothing: the executable has to be in INSTALL_K3S_BIN_DIR, which INSTALL_K3S_SKIP_DOWNLOAD=true says.
set -e

fatal() {
    echo "[ERROR]  $*" >&2
    exit 1
}

info() {
    echo "[INFO]  $*"
}

# What it is to be: the first word of INSTALL_K3S_EXEC or of the arguments, else an agent where there is a URL.
choose_command() {
    case "$1" in
        server | agent) command=$1 && shift ;;
        -* | "") if [ -n "$K3S_URL" ]; then command=agent; else command=server; fi ;;
        *) fatal "unknown command: $1" ;;
    esac
    arguments=""
    for argument in "$@"; do
        arguments="$arguments '$(printf %s "$argument" | sed "s/'/'\\\\''/g")'"
    done
    if [ "$command" = agent ] && [ -n "$K3S_URL" ]; then
        case "$K3S_URL" in
            https://*) ;;
            *) fatal "Only https:// URLs are supported for K3S_URL (have $K3S_URL)" ;;
        esac
        if [ -z "$K3S_TOKEN" ] && [ -z "$K3S_TOKEN_FILE" ]; then
            fatal "Defaulted k3s exec command to 'agent' because K3S_URL is defined, but K3S_TOKEN or K3S_TOKEN_FILE is not defined."
        fi
    fi
}

choose_paths() {
    bin=${INSTALL_K3S_BIN_DIR:-/usr/local/bin}
    systemd=${INSTALL_K3S_SYSTEMD_DIR:-/etc/systemd/system}
    if [ -n "$INSTALL_K3S_NAME" ]; then
        name=k3s-$INSTALL_K3S_NAME
    elif [ "$command" = agent ]; then
        name=k3s-agent
    else
        name=k3s
    fi
    unit=$systemd/$name.service
    environment=$unit.env
    killall=$bin/k3s-killall.sh
    uninstall=$bin/$name-uninstall.sh
}

check_executable() {
    [ "$INSTALL_K3S_SKIP_DOWNLOAD" = true ] || [ "$INSTALL_K3S_SKIP_DOWNLOAD" = binary ] ||
        fatal "Download failed: set INSTALL_K3S_SKIP_DOWNLOAD=true"
    [ -x "$bin/k3s" ] || fatal "Executable k3s binary not found at $bin/k3s"
}

links() {
    for tool in kubectl crictl ctr; do
        [ -e "$bin/$tool" ] || ln -s k3s "$bin/$tool"
    done
}

write_killall() {
    cat > "$killall" << 'EOF'
#!/bin/sh
[ "$(id -u)" -eq 0 ] || exec sudo "$0" "$@"
for service in /etc/systemd/system/k3s*.service; do
    [ -s "$service" ] && systemctl stop "$(basename "$service")"
done
# Shims live on when their daemon ends; what runs in their control groups ends with them.
for shim in $(pgrep -f '/containerd-shim.*-address /run/k3s'); do
    kill -9 $(pgrep -P "$shim") "$shim" 2> /dev/null
done
sleep 0.2
for group in $(find /sys/fs/cgroup -type d -name 'kubepods*' 2> /dev/null); do
    for process in $(cat "$group"/cgroup.procs "$group"/*/cgroup.procs "$group"/*/*/cgroup.procs 2> /dev/null); do
        kill -9 "$process" 2> /dev/null
    done
done
unmount() {
    for mount in $(awk -v path="$1" '$2 ~ ("^" path) { print $2 }' /proc/self/mounts | sort -r); do
        umount -f "$mount" 2> /dev/null || umount -l "$mount"
    done
    rm -rf "$1"
}
unmount /run/k3s
unmount /var/lib/kubelet/pods
unmount /var/lib/kubelet/plugins
unmount /run/netns/cni-
ip netns show 2> /dev/null | awk '/^cni-/ { print $1 }' | xargs -r -n 1 ip netns delete
for link in $(ip -o link show 2> /dev/null | awk -F'[:@] ?' '/master cni0/ { print $2 }'); do
    ip link delete "$link" 2> /dev/null
done
for link in cni0 flannel.1 flannel-wg; do
    ip link delete "$link" 2> /dev/null
done
rm -rf /var/lib/cni/
if command -v iptables-save > /dev/null; then
    iptables-save | grep -v KUBE- | grep -v CNI- | grep -iv flannel | iptables-restore
fi
exit 0
EOF
    chmod 755 "$killall"
}

write_uninstall() {
    cat > "$uninstall" << EOF
#!/bin/sh
[ "\$(id -u)" -eq 0 ] || exec sudo "\$0" "\$@"
$killall
systemctl disable $name 2> /dev/null
systemctl reset-failed $name 2> /dev/null
rm -f $unit $environment
systemctl daemon-reload
rm -f $uninstall $killall
for tool in kubectl crictl ctr; do
    if [ -L $bin/\$tool ] && [ "\$(readlink $bin/\$tool)" = k3s ]; then
        rm -f $bin/\$tool
    fi
done
rm -rf /etc/rancher/k3s /run/k3s /run/flannel /var/lib/rancher/k3s /var/lib/kubelet
rm -f $bin/k3s
exit 0
EOF
    chmod 755 "$uninstall"
}

write_environment() {
    umask_before=$(umask)
    umask 0377
    rm -f "$environment"
    env | grep -E '^(K3S_|CONTAINERD_|[A-Za-z_]*_PROXY=)' | grep -v '^K3S_CONFIG_FILE=$' | sed 's/=\(.*\)$/="\1"/' > "$environment" || true
    umask "$umask_before"
    chmod 600 "$environment"
}

write_unit() {
    cat > "$unit" << EOF
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-$environment
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=$bin/k3s $command $arguments
EOF
}

sums() {
    sha256sum "$bin/k3s" "$unit" "$environment" 2> /dev/null || true
}

start() {
    systemctl daemon-reload
    [ "$INSTALL_K3S_SKIP_ENABLE" = true ] || systemctl enable -q "$name"
    [ "$INSTALL_K3S_SKIP_START" = true ] && return
    if [ "$before" = "$(sums)" ] && [ "$INSTALL_K3S_FORCE_RESTART" != true ] && systemctl -q is-active "$name"; then
        info "No change detected so skipping service start"
        return
    fi
    info "systemd: Starting $name"
    systemctl restart "$name"
}

eval "set -- $(printf %s "$INSTALL_K3S_EXEC") \"\$@\""
choose_command "$@"
choose_paths
check_executable
before=$(sums)
links
write_killall
write_uninstall
write_environment
write_unit
start
