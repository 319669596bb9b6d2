#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts a node: installs the mounted public key, creates a host key unless one is mounted, and runs sshd in the
# foreground.
#
# Root is not required: without it, only the user that runs this script can log in. As root, NODE_USER can log in.
# If MAKE_KEY is not empty, that user also gets a key pair for logins to other nodes when the container first starts.
set -eu

secrets=${SECRETS_DIR:-/run/secrets}
user=${NODE_USER:-$(id -un)}
home=$(getent passwd "$user" | cut -d: -f6)
host_keys=$home/.ssh

if [ ! -s "$secrets/authorized_keys" ] || [ ! -r "$secrets/authorized_keys" ]; then
    echo "node: no user could log in: mount your public key at $secrets/authorized_keys, readable by $(id -un)" >&2
    exit 1
fi
# sshd requires a file that only this user or root can write. The mounted file can have another owner, so copy it.
mkdir -p "$home/.ssh"
chmod 700 "$home/.ssh"
cat "$secrets/authorized_keys" >"$home/.ssh/authorized_keys"
chmod 600 "$home/.ssh/authorized_keys"
if [ -n "${MAKE_KEY:-}" ] && [ ! -s "$home/.ssh/id_ed25519" ]; then
    ssh-keygen -q -t ed25519 -N '' -C "$user@$(uname -n)" -f "$home/.ssh/id_ed25519"
fi
if [ "$(id -u)" = 0 ]; then
    chown -R "$user:" "$home/.ssh"
    mkdir -p /run/sshd
    host_keys=/etc/ssh
fi

key=$host_keys/ssh_host_ed25519_key
if [ -s "$secrets/ssh_host_ed25519_key" ]; then
    (umask 077 && cat "$secrets/ssh_host_ed25519_key" >"$key")
elif [ ! -s "$key" ]; then
    ssh-keygen -q -t ed25519 -N '' -C "$(uname -n)" -f "$key"
fi
ssh-keygen -l -f "$key"
exec /usr/sbin/sshd -D -e -h "$key" -p "${SSH_PORT:-22}" -o PidFile=none
