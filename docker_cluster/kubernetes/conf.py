# SPDX-License-Identifier: Apache-2.0
"""The configuration of a job in pods of the image paddle-job. docs/docker-cluster.md shows how to build the image."""

K8S_IMAGE = "paddle-job"
K8S_USER = 1000  # the image's user, so pods meet the "restricted" Pod Security Standard
K8S_POD = {"spec": {"containers": [{"name": "node", "imagePullPolicy": "IfNotPresent"}]}}
K8S_REQUESTS = {"cpu": "500m", "memory": "1Gi"}
K8S_LIMITS = {"cpu": "500m", "memory": "1Gi"}
