#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds the launcher's side of a test cluster: gate_init.sh HOSTS_FILE
#
# Runs in fresh mount and network namespaces; the bridge of the cluster lives here. Ends when its standard input closes.
set -eu
mount --bind "$1" /etc/hosts
mount -t sysfs sysfs /sys
# The bridge and the gate's own cable are devices of one namespace: only the cable may answer for its address.
echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
echo ready
cat >/dev/null
