# SPDX-License-Identifier: Apache-2.0
"""Statuses of pods that will not run, as the API has them, and what is told of each."""

from __future__ import annotations

from typing import Any

PODS: list[tuple[dict[str, Any], str]] = [
    (
        {
            "phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": text}}}],
        },
        says,
    )
    for reason, text, says in [
        (
            "ImagePullBackOff",
            'Back-off pulling image "image:1"',
            'ImagePullBackOff: Back-off pulling image "image:1"',
        ),
        ("InvalidImageName", "couldn't parse image name", "InvalidImageName: couldn't parse image name"),
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root",
            "container has runAsNonRoot",
        ),
    ]
] + [
    (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        "Evicted: The node was low on resource: memory.",
    ),
    (
        {
            "phase": "Failed",
            "containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}],
        },
        "ran out of memory (OOMKilled)",
    ),
    (
        {
            "phase": "Failed",
            "containerStatuses": [
                {"state": {"terminated": {"reason": "Error", "exitCode": 127, "message": "sh: no python3\n"}}}
            ],
        },
        "ended with status 127: sh: no python3",
    ),
    (
        {
            "phase": "Running",
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByTaintManager",
                    "message": "Taint manager: deleting due to NoExecute taint",
                }
            ],
        },
        "DeletionByTaintManager: Taint manager",
    ),
]
