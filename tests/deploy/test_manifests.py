"""Manifests and units: valid by their schemas, and true about the server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from litestar.routes import HTTPRoute

from server.app.app import create_app
from server.settings.settings import Settings, parse_settings
from tests.deploy.dockerfile import stages_of
from tests.docs.markdown import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes" / "roseinfer.yaml"
COMPOSE = DEPLOY / "compose.yaml"
UNIT = DEPLOY / "systemd" / "roseinfer.service"
HAPROXY = DEPLOY / "haproxy.cfg"
RUNTIME = stages_of(DEPLOY / "docker" / "Dockerfile")["runtime"]

END = 1
"""Seconds that responses get to end with an error after the drain."""


def program(name: str) -> str:
    """A program beside this Python or on the path; skips the test if there is none."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def kubernetes() -> dict[str, dict]:
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(KUBERNETES.read_text())}


def container() -> dict:
    (found,) = kubernetes()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found


def settings_of(arguments: list[str], environ: dict[str, str]) -> Settings:
    """What ``roseinfer ARGUMENTS`` would be started with. Unknown variables fail."""
    known = {name: value for name, value in environ.items() if name.startswith("ROSEINFER_")}
    return parse_settings(arguments, known)


def public_paths() -> set[str]:
    app = create_app(Settings(api_keys=("k",)))
    return {
        route.path_format
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler, _ in route.route_handler_map.values()
        if handler.opt.get("public")
    }


def test_probes_ask_routes_that_need_no_key():
    probes = [
        container()[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")
    ]
    assert [probe["path"] for probe in probes] == ["/livez", "/readyz", "/livez"]
    assert {probe["port"] for probe in probes} == {"http"}
    asked = re.findall(r"GET (/\w+)", HAPROXY.read_text())
    asked += re.findall(r"127\.0\.0\.1:8000(/\w+)", RUNTIME.values("HEALTHCHECK")[0])
    assert {*asked, "/livez"} <= public_paths()


def test_a_pod_has_time_to_drain():
    pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    environ = {v["name"]: v["value"] for v in container()["env"] if "FILE" not in v["name"]}
    settings = settings_of(container()["args"], environ)
    (_, seconds) = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + settings.drain_timeout + END
    readiness = container()["readinessProbe"]
    assert int(seconds) > readiness["periodSeconds"] * readiness["failureThreshold"]


def test_the_pod_runs_as_the_image_s_user_and_on_its_port():
    pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    user = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert ":".join(map(str, user)) == RUNTIME.values("USER")[-1]
    assert [str(port["containerPort"]) for port in container()["ports"]] == RUNTIME.values("EXPOSE")
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert mounts["cache"] == RUNTIME.values("VOLUME")[-1]


def test_labels_select_the_pods():
    labels = kubernetes()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    deployment, budget = kubernetes()["Deployment"], kubernetes()["PodDisruptionBudget"]
    for selector in (
        kubernetes()["Service"]["spec"]["selector"],
        deployment["spec"]["selector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_keys_and_cache_come_from_what_the_manifest_names():
    pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    (file,) = (v["value"] for v in container()["env"] if v["name"] == "ROSEINFER_API_KEY_FILE")
    assert file.startswith(mounts["keys"] + "/")
    (cache,) = (volume for volume in pod["volumes"] if volume["name"] == "cache")
    claim = kubernetes()["PersistentVolumeClaim"]["metadata"]["name"]
    assert cache["persistentVolumeClaim"]["claimName"] == claim


def test_compose_gives_the_server_time_to_drain():
    service = yaml.safe_load(COMPOSE.read_text())["services"]["server"]
    seconds = int(service["stop_grace_period"].removesuffix("s"))
    assert seconds > settings_of(service["command"], {}).drain_timeout + END
    build = service["build"]
    assert (COMPOSE.parent / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    assert f":{RUNTIME.values('VOLUME')[-1]}" in "".join(service["volumes"])
    assert {name for name in service["environment"] if name.startswith("ROSEINFER_")} == {
        "ROSEINFER_API_KEY"
    }


def test_the_unit_gives_the_server_time_to_drain():
    values = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    _, *arguments = values["ExecStart"].split()
    assert int(values["TimeoutStopSec"]) > settings_of(arguments, {}).drain_timeout + END
    assert values["Type"] == "notify"
    assert int(values["WatchdogSec"]) > 0
    assert values["RestartPreventExitStatus"] == "2"
    assert values["Environment"] == f"HOME=/var/cache/{values['CacheDirectory']}"


def test_variables_named_in_the_files_belong_to_flags():
    known = {f"ROSEINFER_{flag}" for flag in ("MODEL", "HOST", *flags())}
    files = [KUBERNETES, COMPOSE, UNIT, HAPROXY, DEPLOY / "docker" / "Dockerfile"]
    named = {name for file in files for name in re.findall(r"ROSEINFER_[A-Z_]+", file.read_text())}
    assert named
    assert named <= known


def flags() -> set[str]:
    text = (ROOT / "docs" / "flags.md").read_text("utf-8")
    return {flag.upper().replace("-", "_") for flag in re.findall(r"`--([a-z][\w-]*)", text)}


def test_systemd_accepts_the_unit(tmp_path):
    verify = program("systemd-analyze")
    unit = tmp_path / UNIT.name
    text = UNIT.read_text().replace("/opt/roseinfer/bin/roseinfer", sys.executable)
    unit.write_text(text)
    checked = subprocess.run([verify, "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    unit.write_text(text.replace("Type=notify", "Type=notified"))
    checked = subprocess.run([verify, "verify", unit], capture_output=True, text=True, check=False)
    assert "notified" in checked.stderr


@pytest.mark.deploy
def test_the_manifest_is_valid_by_kubernetes_own_schemas(tmp_path):
    validate = [program("kubernetes-validate"), "--strict"]
    subprocess.run([*validate, KUBERNETES], check=True)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(KUBERNETES.read_text().replace("periodSeconds: 2", "periodSecond: 2"))
    assert subprocess.run([*validate, wrong], check=False, capture_output=True).returncode != 0


@pytest.mark.deploy
def test_the_compose_file_is_valid_by_its_schema(tmp_path):
    validate = [program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*validate, COMPOSE], check=True)
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("stop_grace_period", "stop_grace"))
    assert subprocess.run([*validate, wrong], check=False, capture_output=True).returncode != 0
