#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds the launcher's side of a test cluster: gate_init.sh HOSTS_FILE
#
# Runs in fresh mount and network namespaces; the bridge of the cluster lives here. Ends when its standard input closes.
set -eu
mount --bind "$1" /etc/hosts
mount -t sysfs sysfs /sys
echo ready
cat >/dev/null
