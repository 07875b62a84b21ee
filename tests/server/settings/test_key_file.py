import pytest

from server.settings.key_file import ApiKey, KeyFile, KeyFileError, can_others_read


def written(tmp_path, data):
    path = tmp_path / "keys"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("secret", [("secret", "")]),
        ("alice:secret\nbob:other\n", [("secret", "alice"), ("other", "bob")]),
        ("alice:one\nalice:two", [("one", "alice"), ("two", "alice")]),
        (" a.b-c_1 :  k:e:y \r\n", [("k:e:y", "a.b-c_1")]),
        ("\n# comment: x\n\nsecret\n#", [("secret", "")]),
        ("\ufeffschl\u00fcssel", [("schl\u00fcssel", "")]),
    ],
)
def test_lines(tmp_path, text, keys):
    assert KeyFile.read(written(tmp_path, text)).keys == tuple(ApiKey(*key) for key in keys)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "contains no key"),
        ("# only\n\n", "contains no key"),
        ("good\nnot a name:secret", "line 2: a name has"),
        (":secret", "line 1: a name has"),
        ("x" * 65 + ":secret", "line 1: a name has"),
        ("alice:", "line 1: the key is empty"),
        ("a:secret\nb:secret", "line 2: this key occurs twice"),
        (b"secret\xff", "is not UTF-8"),
    ],
)
def test_errors_name_the_line_and_no_key(tmp_path, data, says):
    with pytest.raises(KeyFileError) as caught:
        KeyFile.read(written(tmp_path, data))
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(KeyFileError, match=str(path)):
            KeyFile.read(str(path))


def test_who_can_read_the_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("x")
    for mode, is_open in ((0o600, False), (0o640, False), (0o644, True)):
        path.chmod(mode)
        assert can_others_read(str(path)) == is_open
    assert not can_others_read(str(tmp_path / "missing"))
