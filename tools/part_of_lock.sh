#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the lines of requirements.lock that pin these packages, with their hashes: sh tools/part_of_lock.sh NAME...
#
#   sh tools/part_of_lock.sh numpy pyzmq > docker_cluster/requirements.txt
set -eu
cd "$(dirname "$0")/.."
echo "# Made by: sh tools/part_of_lock.sh $*"
awk -v names="$*" '
    BEGIN { count = split(names, each, " "); for (i = 1; i <= count; i++) wanted[each[i]] }
    /^[^ ]/ { split($0, word, "=="); on = word[1] in wanted; seen[word[1]] }
    on
    END {
        for (name in wanted) if (!(name in seen)) {
            print "part_of_lock: requirements.lock pins no " name >"/dev/stderr"
            failed = 1
        }
        exit failed
    }
' requirements.lock
