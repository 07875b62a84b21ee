"""Files in memory, and when a client has them already."""

import pytest

from server.ui.routes import FOLDER, MEDIA_TYPES, UiFile, read_files


def test_every_file_of_the_folder_is_read():
    files = read_files()
    on_disk = {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*") if file.is_file()}
    assert set(files) == on_disk
    for name, file in files.items():
        assert file.content == (FOLDER / name).read_bytes()
        assert file.media_type == MEDIA_TYPES[f".{name.rpartition('.')[2]}"]


def test_the_etag_is_that_of_the_content(tmp_path):
    (tmp_path / "a.js").write_text("1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.js").write_text("1")
    (tmp_path / "c.js").write_text("2")
    files = read_files(tmp_path)
    assert set(files) == {"a.js", "sub/b.js", "c.js"}
    assert files["a.js"].etag == files["sub/b.js"].etag != files["c.js"].etag


def test_a_file_of_an_unknown_kind_is_noticed(tmp_path):
    (tmp_path / "a.exe").write_bytes(b"")
    with pytest.raises(KeyError):
        read_files(tmp_path)


@pytest.mark.parametrize(
    ("if_none_match", "is_known"),
    [
        (None, False),
        ("", False),
        ('"b"', False),
        ("a", False),
        ('"a"', True),
        ('W/"a"', True),
        ('"b", W/"a"', True),
        ("*", True),
    ],
)
def test_if_none_match(if_none_match, is_known):
    assert UiFile(b"", "text/css", '"a"').is_known(if_none_match) is is_known
