#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts a node: takes the mounted keys, makes a host key if none is mounted, runs sshd in the foreground.
#
# NODE_USER (root) is who may log in. MAKE_KEY, if it is not empty: this user gets a key to log in to others with, made
# when the container first starts.
set -eu

secrets=${SECRETS_DIR:-/run/secrets}
key=/etc/ssh/ssh_host_ed25519_key
user=${NODE_USER:-root}
home=$(getent passwd "$user" | cut -d: -f6)

if [ ! -s "$secrets/authorized_keys" ]; then
    echo "node: nobody may log in: mount your public key at $secrets/authorized_keys" >&2
    exit 1
fi
# A copy, because sshd wants a file that root alone can write, and a mounted one belongs to whoever mounted it.
mkdir -p "$home/.ssh" /run/sshd
chmod 700 "$home/.ssh"
cp "$secrets/authorized_keys" "$home/.ssh/authorized_keys"
chmod 600 "$home/.ssh/authorized_keys"
if [ -n "${MAKE_KEY:-}" ] && [ ! -s "$home/.ssh/id_ed25519" ]; then
    ssh-keygen -q -t ed25519 -N '' -C "$user@$(uname -n)" -f "$home/.ssh/id_ed25519"
fi
chown -R "$user:" "$home/.ssh"

if [ -s "$secrets/ssh_host_ed25519_key" ]; then
    cp "$secrets/ssh_host_ed25519_key" "$key"
    chmod 600 "$key"
elif [ ! -s "$key" ]; then
    ssh-keygen -q -t ed25519 -N '' -f "$key"
fi
ssh-keygen -l -f "$key"
exec /usr/sbin/sshd -D -e
