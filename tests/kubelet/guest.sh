# In a guest of the lab under systemd: kubelet with the systemd cgroup driver through bayplan.service to containerd, by the kernel's word.
# Kubelet and images follow the script, after so many bytes as `guest` has written into its first lines.
set -u
WORK=/run/kubelet-test
TREE=/sys/fs/cgroup/kubepods.slice
MANIFESTS=$WORK/manifests
up() { cut -d' ' -f1 /proc/uptime; }
say() { echo "kubelet: $(up) s: $*"; }
fail() {
    say "FAILED: $*"
    [ -z "${OWNER-}" ] || say "owner, sharer, idler: $(seats)"
    bayplan status
    dmesg | grep bayplan | tail -n 40
    for log in containerd kubelet; do tail -n 40 $WORK/$log.log | cut -c1-300; cp $WORK/$log.log /artefacts/; done
    exit 1
}
# Asks until it is so; the limit is for an emulated machine on a busy one.
await() {
    what=$1; shift
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 240 ] || fail "waited for $what"
        sleep 0.5
    done
    say "$what"
}

is_serving() { ctr version > /dev/null 2>&1; }
start_runtime() {
    mkdir -p /run/containerd /etc/containerd
    cat > $WORK/containerd.toml <<TOML
version = 2
root = "$WORK/root"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.9"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
TOML
    containerd --config $WORK/containerd.toml --log-level warn > $WORK/containerd.log 2>&1 &
    await "containerd answers" is_serving
    ctr --namespace k8s.io images import $WORK/images.tar > /dev/null || fail "no images"
}

start_bayplan() {
    sed -i 's/^decisionTimeout: .*/decisionTimeout: 30s/' /etc/bayplan/config.yaml
    systemctl enable --now bayplan.socket bayplan.service || fail "no bayplan"
}

configure_kubelet() {
    cat > $WORK/kubelet.json <<JSON
{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": "127.0.0.1", "readOnlyPort": 10255,
 "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}}, "authorization": {"mode": "AlwaysAllow"},
 "staticPodPath": "$MANIFESTS", "volumePluginDir": "$WORK/plugins", "containerRuntimeEndpoint": "unix:///run/bayplan/bayplan.sock",
 "cgroupDriver": "systemd", "cpuManagerPolicy": "none", "memoryManagerPolicy": "None", "enforceNodeAllocatable": [], "failSwapOn": false,
 "makeIPTablesUtilChains": false, "fileCheckFrequency": "1s", "runtimeRequestTimeout": "5m", "localStorageCapacityIsolation": false,
 "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}}
JSON
    cat > /run/systemd/system/kubelet.service <<UNIT
[Service]
ExecStart=$WORK/kubelet --config $WORK/kubelet.json --root-dir $WORK/lib --cert-dir $WORK/pki --hostname-override guest --v 2
Environment=PATH=/usr/sbin:/usr/bin:/bin HOME=/root GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1 GOGC=400
StandardOutput=append:$WORK/kubelet.log
StandardError=append:$WORK/kubelet.log
KillMode=process
UNIT
    systemctl daemon-reload
}

is_healthy() { [ "$(wget -q -O - http://127.0.0.1:10248/healthz 2>/dev/null)" = ok ]; }

# Name, number, and the resources of its container.
submit() {
    cat > $MANIFESTS/.$1 <<JSON
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$1", "namespace": "default", "uid": "00000000-0000-0000-0000-00000000000$2"},
 "spec": {"hostNetwork": true, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "enableServiceLinks": false, "dnsPolicy": "Default",
  "containers": [{"name": "main", "image": "registry.k8s.io/e2e-test-images/busybox:1.29-2", "imagePullPolicy": "Never",
   "command": ["/bin/busybox", "sleep", "1000000"], "resources": $3}]}}
JSON
    mv $MANIFESTS/.$1 $MANIFESTS/$1.json
}

# The process of the container of pod number $1 in the slice of class $2 (empty: Guaranteed), as kubelet names it. Others there are the sandbox's, and runc's before they become either.
process_of() {
    slice=$TREE/${2:+kubepods-$2.slice/}kubepods-${2:+$2-}pod00000000_0000_0000_0000_00000000000$1.slice
    for group in "$slice"/cri-containerd-*.scope; do
        read -r pid 2>/dev/null < "$group/cgroup.procs" || continue
        read -r comm < "/proc/$pid/comm" || continue
        [ "$comm" = busybox ] && echo "$pid"
    done
}
runs() { [ -n "$(process_of "$1" "$2")" ]; }
# As the kernel has it: CPUs, and memory nodes.
allowed() { sed -n "s/^$1_allowed_list:[[:space:]]*//p" "/proc/$2/status"; }
# A list with every number; in a shell of its own, whose IFS it changes.
expand() {
    IFS=,
    for part in $1; do
        number=${part%-*}
        while [ "$number" -le "${part#*-}" ]; do
            echo "$number"
            number=$((number + 1))
        done
    done
}
# Whether neither $1 nor $2 is in the list $3.
lacks() {
    for cpu in $(expand "$3"); do
        [ "$cpu" != "$1" ] && [ "$cpu" != "$2" ] || return 1
    done
}
# Every process with where it is; what a restart must not change.
seats() {
    for it in "$OWNER" "$SHARER" "$IDLER"; do echo "$it $(allowed Cpus "$it") $(allowed Mems "$it")"; done
}
is_seated() { [ "$(seats)" = "$SEATS" ]; }
is_everywhere() {
    for it in "$OWNER" "$SHARER" "$IDLER"; do
        [ "$(allowed Cpus "$it")" = "$(cat /sys/devices/system/cpu/online)" ] && [ "$(allowed Mems "$it")" = "$(cat /sys/devices/system/node/has_memory)" ] || return 1
    done
}

is_placed() {
    # shellcheck disable=SC2046
    set -- $(expand "$(allowed Cpus "$OWNER")")
    [ $# -eq 2 ] || return 1
    for node in /sys/devices/system/node/node[0-9]*; do
        if [ -e "$node/cpu$1" ] && [ -e "$node/cpu$2" ]; then
            [ "$(allowed Mems "$OWNER")" = "${node##*/node}" ] && lacks "$1" "$2" "$(allowed Cpus "$SHARER")" && lacks "$1" "$2" "$(allowed Cpus "$IDLER")"
            return
        fi
    done
    return 1
}
is_known() { [ "$(bayplan status -o json | grep -c '"phase": "running"')" = 3 ]; }
knows_nobody() { bayplan status -o json | grep -q '"containers": \[\]' && [ -z "$(ls -d $TREE/*pod0* $TREE/*/*pod0* 2>/dev/null)" ]; }

mkdir -p $WORK /artefacts
mount -t tmpfs tmpfs $WORK
mkdir -p $MANIFESTS
tail -c "+$((SKIP + 1))" "$0" | tar -x -C $WORK || fail "nothing to unpack"
start_runtime
start_bayplan
configure_kubelet
systemctl start kubelet.service || fail "no kubelet"
await "kubelet is healthy" is_healthy
submit owner 1 '{"requests": {"cpu": "2", "memory": "32Mi"}, "limits": {"cpu": "2", "memory": "32Mi"}}'
submit sharer 2 '{"requests": {"cpu": "500m", "memory": "16Mi"}}'
submit idler 3 '{}'
await "a Guaranteed pod runs" runs 1 ""
await "a Burstable pod runs" runs 2 burstable
await "a BestEffort pod runs" runs 3 besteffort
OWNER=$(process_of 1 "") SHARER=$(process_of 2 burstable) IDLER=$(process_of 3 besteffort)
await "its CPUs are its own, in one NUMA node" is_placed
await "Bayplan knows all three" is_known
SEATS=$(seats)
say "$SEATS"

systemctl restart kubelet.service || fail "no kubelet after a restart"
await "kubelet is healthy again" is_healthy
# As long as it takes to look at all pods, and to write the slices around them.
sleep 15
is_seated || fail "kubelet's restart moved somebody: $SEATS, now $(seats)"

systemctl restart bayplan.service || fail "no bayplan after a restart"
is_seated || fail "Bayplan's restart moved somebody: $SEATS, now $(seats)"

bayplan restore --yes || fail "restore"
is_everywhere || fail "restored: $(seats)"
bayplan resume --yes || fail "resume"
await "all are where they were" is_seated

rm $MANIFESTS/*.json
await "nobody is left" knows_nobody
say "passed"
