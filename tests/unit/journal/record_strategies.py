"""One of every kind of record, drawn by Hypothesis, and the plain values they are made of."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from fairlane.journal.records import AnyRecord

NUMBERS = st.integers(0, 2**63 - 1)
RECORD_KINDS: tuple[type[Any], ...] = get_args(AnyRecord)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Draw a value of a type that a field of a record may have."""
    if isinstance(kind, msgspec.inspect.Metadata):  # a bound on what callers send; the values drawn stay below it
        return values_of(kind.type)
    if isinstance(kind, msgspec.inspect.IntType):
        return NUMBERS
    if isinstance(kind, msgspec.inspect.FloatType):
        return st.floats(allow_nan=False, width=64)
    if isinstance(kind, msgspec.inspect.StrType):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    if isinstance(kind, msgspec.inspect.BytesType):
        return st.binary(max_size=8)
    if isinstance(kind, msgspec.inspect.BoolType):
        return st.booleans()
    if isinstance(kind, msgspec.inspect.NoneType):
        return st.none()
    if isinstance(kind, msgspec.inspect.LiteralType):
        return st.sampled_from(kind.values)
    return _containers_of(kind)


def _containers_of(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, msgspec.inspect.UnionType):
        return st.one_of([values_of(one) for one in kind.types])
    if isinstance(kind, msgspec.inspect.ListType):
        return st.lists(values_of(kind.item_type), max_size=3)
    if isinstance(kind, msgspec.inspect.TupleType):
        return st.tuples(*map(values_of, kind.item_types))
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return st.lists(values_of(kind.item_type), max_size=3).map(tuple)
    if isinstance(kind, msgspec.inspect.DictType):
        return st.dictionaries(values_of(kind.key_type), values_of(kind.value_type), max_size=3)
    if isinstance(kind, msgspec.inspect.StructType):
        drawn = {field.name: values_of(field.type) for field in kind.fields}
        return st.fixed_dictionaries(drawn).map(lambda fields: kind.cls(**fields))
    raise AssertionError(f"Records hold nothing like {kind}.")


def records_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Draw a record of one kind, with anything its types allow in its fields."""
    return values_of(msgspec.inspect.type_info(kind))


ANY_RECORDS: st.SearchStrategy[Any] = st.one_of([records_of(kind) for kind in RECORD_KINDS])
