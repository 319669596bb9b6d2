# SPDX-License-Identifier: Apache-2.0
"""A job in pods of the image that `docker build --target job` makes; see docs/docker-cluster.md."""

K8S_IMAGE = "paddle-job"
K8S_USER = 1000  # the image's own: nothing in a pod is root, and its namespace may be "restricted"
K8S_POD = {"spec": {"containers": [{"name": "node", "imagePullPolicy": "IfNotPresent"}]}}
K8S_REQUESTS = {"cpu": "500m", "memory": "1Gi"}
K8S_LIMITS = {"cpu": "500m", "memory": "1Gi"}
