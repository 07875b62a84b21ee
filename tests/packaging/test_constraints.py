"""constraints.txt: releases within the ranges of pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.constraints import FILE, constraints

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TESTED = ("dev", "docs", "bench", "otel")
"""The extras that the tests of `.ci/run` install, or parts of these."""

PINNED = {canonicalize_name(name): Version(release) for name, release in constraints().items()}


def requirements(*extras: str) -> Iterator[Requirement]:
    """The direct dependencies with these extras, or with all."""
    optional = PROJECT["optional-dependencies"]
    for each in (PROJECT["dependencies"], *(optional[name] for name in extras or optional)):
        yield from map(Requirement, each)


def test_every_direct_dependency_is_named():
    needed = {canonicalize_name(each.name) for each in requirements(*TESTED)}
    assert {"torch", "transformers", "pytest"} <= needed
    assert needed <= PINNED.keys()


@pytest.mark.parametrize("wanted", sorted({str(each) for each in requirements()}))
def test_a_release_lies_in_the_range(wanted):
    requirement = Requirement(wanted)
    release = PINNED.get(canonicalize_name(requirement.name))
    assert release is None or release in requirement.specifier


def test_a_package_is_named_once_and_in_order():
    names = [line.partition("==")[0] for line in FILE.read_text("utf-8").splitlines()]
    names = [name for name in names if not name.startswith("#")]
    assert len(PINNED) == len(names)
    assert names == sorted(names, key=str.lower)


def test_releases_are_those_of_the_index_for_packages():
    """A local part, as torch's builds for CPUs have it, is not on PyPI."""
    assert [name for name, release in PINNED.items() if release.local] == []
