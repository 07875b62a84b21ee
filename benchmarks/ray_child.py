"""A small cluster of Ray with Serve on this machine, driven by lines of JSON on standard input.

``benchmarks/ray_cluster.py`` starts it and has the protocol. The end of the input ends the cluster.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

import ray
from ray import serve

from server.ray.app import application
from server.ray.plan import plan_of

OBJECT_STORE = 200 * 2**20


def start(port: int, num_cpus: int, folder: str) -> None:
    ray.init(
        num_cpus=num_cpus,
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    http = {"host": "127.0.0.1", "port": port, "request_timeout_s": None, "location": "HeadOnly"}
    serve.start(http_options=http)


def deploy(
    args: dict[str, Any], name: str, prefix: str, replica: str, options: dict[str, Any]
) -> None:
    """Deploy an application and wait until it runs. See ``RayCluster.deploy``."""
    plan = plan_of(args)
    plan.options.update(options)
    module, _, class_name = replica.partition(":")
    target = application(plan, getattr(importlib.import_module(module), class_name))
    serve.run(target, name=name, route_prefix=prefix)


def replicas(name: str) -> list[dict[str, Any]]:
    """``Replica.record_routing_stats`` of each replica of an application that answers."""
    start_of = f"SERVE_REPLICA::{name}#"
    found = []
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith(start_of):
            try:
                handle = ray.get_actor(actor["name"], namespace=actor["namespace"])
                stats = ray.get(handle.record_routing_stats.remote(), timeout=20)
            except (ValueError, ray.exceptions.RayError):
                continue  # it ends
            found.append(stats)
    return found


def status(name: str) -> dict[str, Any]:
    """See ``RayCluster.status``."""
    app = serve.status().applications.get(name)
    if app is None:
        return {"status": "NONE", "message": "", "replicas": {}}
    states: dict[str, int] = {}
    for deployment in app.deployments.values():
        for state, number in deployment.replica_states.items():
            states[getattr(state, "value", state)] = number
    messages = [app.message, *(deployment.message for deployment in app.deployments.values())]
    return {"status": str(app.status), "message": " ".join(messages), "replicas": states}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints
    port, num_cpus, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    start(port, num_cpus, folder)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    commands = {"deploy": deploy, "replicas": replicas, "status": status, "delete": serve.delete}
    for line in sys.stdin:
        command = json.loads(line)
        began = time.monotonic()
        answer: dict[str, Any]
        try:
            result = commands[command.pop("do")](**command)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer = {"error": f"{type(error).__name__}: {error}"}
        else:
            answer = {"result": result}
        answer["seconds"] = time.monotonic() - began
        print(json.dumps(answer), file=answers, flush=True)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
