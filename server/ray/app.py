"""build: the application of one model for Ray Serve.

serve run server.ray.app:build model=MODEL replicas=2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve

from server.ray.plan import Plan, plan_of
from server.ray.replica import Replica


def build(args: Mapping[str, Any]) -> Any:
    """Build the application of ``plan_of(args)``. Raises PlanError."""
    return application(plan_of(args))


def application(plan: Plan, replica: type[Replica] = Replica) -> Any:
    """The application of a plan, with another class of replicas if one is given."""
    return serve.deployment(**plan.options)(serve.ingress()(replica)).bind(plan.argv)
