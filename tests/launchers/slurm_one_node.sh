#!/usr/bin/env bash
# Runs a command in a temporary Slurm cluster of this one machine.
#
#   tests/launchers/slurm_one_node.sh srun --ntasks 2 --kill-on-bad-exit=1 learner ...
#
# Needs root and Debian's slurm-wlm and munge. Everything is in a temporary directory: its key,
# sockets, ports and logs. A cluster that this machine belongs to is not touched. No cgroups and no
# accounting. Prints the logs if the daemons do not start.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,9s/^# \?//p' "$0"; exit 2; }
[ "$(id -u)" = 0 ] || { echo "slurm_one_node: only root can start Slurm's daemons" >&2; exit 2; }
export PATH=$PATH:/usr/sbin
dir=$(mktemp -d /tmp/slurm_one_node.XXXXXX)
chmod 755 "$dir"
pids=()
cleanup() {
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2>/dev/null && wait "${pids[i]}" 2>/dev/null || true
  done
  rm -rf "$dir"
}
trap cleanup EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

mkdir -m 700 "$dir/state" "$dir/spool"
dd if=/dev/urandom of="$dir/munge.key" bs=1024 count=1 status=none
chmod 600 "$dir/munge.key"
munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" \
  --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" \
  >"$dir/munged.out" 2>&1 &
pids+=($!)

cat >"$dir/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=30
NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
SlurmdParameters=config_overrides
CONF
export SLURM_CONF=$dir/slurm.conf
slurmctld -D -c >"$dir/slurmctld.out" 2>&1 &
pids+=($!)
slurmd -D -N localhost >"$dir/slurmd.out" 2>&1 &
pids+=($!)

for _ in $(seq 100); do
  state=$(sinfo --noheader --format %T 2>/dev/null || true)
  [ "$state" = idle ] && break
  sleep 0.2
done
if [ "${state:-}" != idle ]; then
  echo "slurm_one_node: the cluster did not come up: ${state:-no answer}" >&2
  tail -n 15 "$dir"/*.log "$dir"/*.out >&2
  exit 3
fi
rc=0
"$@" || rc=$?
exit $rc
