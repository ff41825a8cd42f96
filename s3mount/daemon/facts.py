"""Statistics of any component → what JSON can say, by their own field names.

A component that is added to `Components.statistics` shows by itself: in the log, and in `s3mountctl stats --json` under
`parts`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass

#: What JSON has.
Fact = dict[str, "Fact"] | list["Fact"] | str | int | float | bool | None


def facts_of(value: object) -> Fact:
    """Dataclasses, named tuples and mappings as objects, other sequences as lists, numbers as they are.

    An infinite number, which JSON does not have, is null; what is none of these is its text.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): facts_of(each) for name, each in value.items()}
    names = [field.name for field in fields(value)] if is_dataclass(value) else getattr(value, "_fields", None)
    if names is not None:
        return {name: facts_of(getattr(value, name)) for name in names}
    if isinstance(value, Collection):
        return [facts_of(each) for each in value]
    return str(value)
