"""The tables of docs/deployment.md follow from their own columns and from deploy/."""

import pytest
import yaml

from tests.docs.markdown import ROOT, page

PAGE = page(ROOT / "docs" / "deployment.md")


def rows(heading: str) -> list[list[str]]:
    lines = [line for line in PAGE.section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", rows("Sizing")[1:], ids=lambda row: row[0])
def test_sizes_of_the_cache_are_what_the_formula_says(row):
    layers, heads, dimension = map(int, row[1:4])
    num_bytes = 2 * layers * heads * dimension * 2
    assert float(row[5]) == num_bytes / 1024
    assert float(row[6]) == pytest.approx(num_bytes * 100_000 / 1e9, abs=0.05)


def test_every_file_of_the_folder_is_in_the_table():
    named = {link for link in PAGE.links if link.startswith("../deploy/")}
    linked = {(PAGE.path.parent / link).resolve() for link in named}
    kinds = {".cfg", ".yaml", ".service", ""}
    files = {file for file in (ROOT / "deploy").rglob("*") if file.is_file()}
    assert {file for file in files if file.suffix in kinds} <= linked


def test_the_probes_are_those_of_the_manifest():
    manifests = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "roseinfer.yaml").read_text())
    (pod,) = (m["spec"]["template"]["spec"] for m in manifests if m["kind"] == "Deployment")
    (server,) = pod["containers"]
    said = {row[0]: row[1].strip("`") for row in rows("Kubernetes") if len(row) == 3}
    for name in ("startup", "readiness", "liveness"):
        assert said[f"{name} probe"] == server[f"{name}Probe"]["httpGet"]["path"]
    assert said["grace period"] == f"{pod['terminationGracePeriodSeconds']} s"
    assert said["`preStop`"] == f"waits {server['lifecycle']['preStop']['exec']['command'][1]} s"
