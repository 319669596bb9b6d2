# SPDX-License-Identifier: Apache-2.0
"""The engine of Kubernetes: one pod for each node. A table entry."""

from __future__ import annotations

import textwrap

from paddle_cluster.config.settings import Settings
from paddle_cluster.engines import kubernetes_objects
from paddle_cluster.engines.kubernetes_api import INSTALL, is_installed
from paddle_cluster.engines.kubernetes_job import KubernetesJob
from paddle_cluster.engines.porter_engine import PorterEngine
from paddle_cluster.engines.porters import Porters
from paddle_cluster.errors import UsageError
from paddle_cluster.plan.plan import Plan


class KubernetesEngine(PorterEngine):
    """Makes a Job whose pods call."""

    @classmethod
    def described(cls, text: str, plan: Plan) -> str:
        """All of it is YAML: the text is a comment before the objects."""
        return textwrap.indent(text, "# ", lambda line: True) + kubernetes_objects.shown(plan)

    def address(self, settings: Settings) -> str:
        """K8S_ADDRESS precedes ENGINE_ADDRESS."""
        return settings.kubernetes.address or settings.engines.address

    def porters(self) -> Porters:
        """A Job."""
        if not is_installed():
            raise UsageError(
                f"--engine=kubernetes needs Kubernetes' client for Python, which is not here: {INSTALL}"
            )
        return KubernetesJob(self._plan)


ENGINE = KubernetesEngine
