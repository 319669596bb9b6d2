#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Process 1 of a test host: host_init.sh STATE NAME [KEPT_DIR ...]
#
# Runs in fresh mount, pid, uts, ipc and network namespaces. STATE holds etc/ (passwd, hosts, sshd_config, keys) and fs/
# (what the host sees as /root and /tmp). Says "ready", brings up network and sshd when a line says that the cable is in,
# then lives until its standard input closes; the kernel kills every process of the host with it. As process 1
# it also reaps orphans, which dash does while it waits.
set -eu
state=$1
name=$2
shift 2

echo "$name" >/proc/sys/kernel/hostname
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/host
mount --bind "$state/etc" /run/host
for file in passwd shadow hosts; do
    mount --bind "$state/etc/$file" "/etc/$file"
done

# The interpreter may live below /root or /tmp: those directories stay visible, read-only.
for kept in "$@"; do
    mkdir -p "$state/fs$kept"
    mount --bind "$kept" "$state/fs$kept"
    mount -o remount,bind,ro "$state/fs$kept"
done
mount --rbind "$state/fs/root" /root
mount --rbind "$state/fs/tmp" /tmp
cd /

echo ready
read -r _
ip -batch /run/host/network
/usr/sbin/sshd -D -E /run/host/sshd.log -f /run/host/sshd_config </dev/null >/dev/null 2>&1 &
cat >/dev/null
