#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts a node: takes the mounted keys, makes a host key if none is mounted, runs sshd in the foreground.
set -eu

secrets=${SECRETS_DIR:-/run/secrets}
key=/etc/ssh/ssh_host_ed25519_key

if [ ! -s "$secrets/authorized_keys" ]; then
    echo "node: nobody may log in: mount your public key at $secrets/authorized_keys" >&2
    exit 1
fi
# A copy, because sshd wants a file that root alone can write, and a mounted one belongs to whoever mounted it.
mkdir -p /root/.ssh /run/sshd
chmod 700 /root/.ssh
cp "$secrets/authorized_keys" /root/.ssh/authorized_keys
chmod 600 /root/.ssh/authorized_keys

if [ -s "$secrets/ssh_host_ed25519_key" ]; then
    cp "$secrets/ssh_host_ed25519_key" "$key"
    chmod 600 "$key"
elif [ ! -s "$key" ]; then
    ssh-keygen -q -t ed25519 -N '' -f "$key"
fi
ssh-keygen -l -f "$key"
exec /usr/sbin/sshd -D -e
