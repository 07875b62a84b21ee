"""A Struct with a tag stands in a union: alone, it would be decoded without its tag."""

import msgspec
from msgspec import inspect as types

from schemas.base import RequestModel
from tests.schemas.conftest import subclasses


def structs_alone(type_):
    """The Structs that are no member of a union of Structs, below a type of a field."""
    match type_:
        case types.Metadata(type=inner):
            yield from structs_alone(inner)
        case types.UnionType(types=members):
            structs = [member for member in members if isinstance(member, types.StructType)]
            for member in members:
                if member not in structs or len(structs) == 1:
                    yield from structs_alone(member)
        case types.ListType(item_type=inner) | types.DictType(value_type=inner):
            yield from structs_alone(inner)
        case types.StructType():
            yield type_


def test_no_struct_with_a_tag_stands_alone():
    for request in subclasses(RequestModel):
        for field in types.type_info(request).fields:
            for struct in structs_alone(field.type):
                assert struct.tag is None, f"{request.__name__}.{field.name}"


def test_the_check_sees_one():
    class Tagged(msgspec.Struct, tag_field="type", tag="x"):
        pass

    class Other(msgspec.Struct, tag_field="type", tag="y"):
        pass

    for alone in (Tagged, Tagged | None, list[Tagged] | str, dict[str, list[Tagged]]):
        assert [struct.cls for struct in structs_alone(types.type_info(alone))] == [Tagged]
    assert list(structs_alone(types.type_info(list[Tagged | Other] | None))) == []
