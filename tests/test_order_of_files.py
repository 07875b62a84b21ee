"""Files with long tests are handed out first, so that no worker ends alone with one."""

from pathlib import Path
from types import SimpleNamespace

from tests.conftest import LongFilesFirst


def item(path: str, *, is_slow: bool = False):
    marker = object() if is_slow else None
    return SimpleNamespace(path=Path(path), get_closest_marker=lambda _name: marker)


def test_slow_files_then_servers_then_those_with_many_tests():
    items = [
        *[item("tests/few.py")],
        *[item("tests/many.py") for _ in range(3)],
        *[item("compat_tests/servers.py")],
        *[item("tests/long.py"), item("tests/long.py", is_slow=True)],
    ]
    of_long = items[5:]
    LongFilesFirst().pytest_collection_modifyitems(items)
    assert [one.path.stem for one in items] == [
        *("long", "long", "servers", "many", "many", "many", "few"),
    ]
    assert items[:2] == of_long
