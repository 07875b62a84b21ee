"""transformers' listing of its families: kept between starts until a file changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.module.kept_listing import kept

LISTING = {
    frozenset(): {"one": {"A", "B"}},
    frozenset({"torch", "vision"}): {"one": {"C"}, "two": {"D"}},
    "inner": {frozenset({"torch"}): {"three": {"E"}}},
}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "inner").mkdir(parents=True)
    for name in ("one.py", "two.py", "inner/three.py"):
        (tmp_path / "root" / name).write_text("")
    return tmp_path / "root"


@pytest.fixture
def start(root, tmp_path):
    """A function that begins anew: what is found, and the paths that something was made for."""
    maker = tmp_path / "maker.py"
    maker.touch()

    def start(listing=LISTING, folders=lambda: [tmp_path], path=root):
        made = []

        def create(asked):
            made.append(asked)
            return listing if asked == str(root) else {}

        return kept(create, str(root), [str(maker)], folders)(str(path)), made

    return start


def test_a_second_start_makes_nothing(start, root):
    assert start() == (LISTING, [str(root)])
    assert start() == (LISTING, [])


def test_what_is_in_a_folder_is_known_with_the_whole(root, tmp_path, start):
    start()
    made = []
    find = kept(made.append, str(root), [str(tmp_path / "maker.py")], lambda: [tmp_path])
    find(str(root))
    assert find(str(root / "inner")) == LISTING["inner"]
    assert made == []


@pytest.mark.parametrize("change", ["a file", "a new file", "a file in a folder", "the maker"])
def test_a_change_makes_it_anew(start, root, tmp_path, change):
    start()
    file = {
        "a file": root / "one.py",
        "a new file": root / "new.py",
        "a file in a folder": root / "inner" / "three.py",
        "the maker": tmp_path / "maker.py",
    }[change]
    file.touch()
    os.utime(file, ns=(0, 1))
    other = {frozenset(): {"one": {"F"}}}
    assert start(other) == (other, [str(root)])
    assert start() == (other, [])


def test_another_path_is_not_kept(start, root):
    for _ in range(2):
        assert start(path=root / "other") == ({}, [str(root / "other")])


@pytest.mark.parametrize("content", [b"", b"{}", b'["digest", [{}, [[[1], {}]]]]'])
def test_a_damaged_file_is_replaced(start, root, tmp_path, content):
    start()
    [file] = tmp_path.glob("*.json")
    file.write_bytes(content)
    assert start() == (LISTING, [str(root)])
    assert start() == (LISTING, [])


@pytest.mark.parametrize(
    "listing", [{frozenset(): {"one": ["A"]}}, {1: {}}, {"a": None}, {frozenset(): {"a": {1}}}]
)
def test_a_listing_of_another_form_is_not_kept(start, root, listing):
    for _ in range(2):
        assert start(listing) == (listing, [str(root)])


def test_without_a_folder_it_is_made(start, root):
    def nowhere() -> list[Path]:
        raise OSError("no folder")

    for folders in (nowhere, lambda: [root / "one.py"]):
        assert start(folders=folders) == (LISTING, [str(root)])


def test_folders_are_tried_in_turn(start, root, tmp_path):
    """The first one cannot be written to; later it can, with a listing that is too old."""
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    assert start(folders=lambda: [first, second]) == (LISTING, [str(root)])
    assert start(folders=lambda: [first, second]) == (LISTING, [])
    first.mkdir()
    [file] = second.iterdir()
    (first / file.name).write_bytes(b"[]")
    assert start(folders=lambda: [first, second]) == (LISTING, [])


def test_a_change_of_this_program_makes_it_anew(start, root, tmp_path, monkeypatch):
    start()
    other = tmp_path / "kept_listing.py"
    other.touch()
    monkeypatch.setattr("core.module.kept_listing.__file__", str(other))
    assert start() == (LISTING, [str(root)])
