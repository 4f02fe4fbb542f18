"""An enum's values by their words: what job files call LORA is METHOD_LORA in the schema, where a
value bears its type's name. The zero value means "not given" and keeps its whole name.
"""

from __future__ import annotations

from google.protobuf.descriptor import EnumDescriptor


def names_by_word(type_: EnumDescriptor) -> dict[str, str]:
    """The schema's names by their words, in the schema's order."""
    prefix = type_.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        value.name if value.number == 0 else value.name.removeprefix(prefix): value.name
        for value in type_.values
    }


def word_of(type_: EnumDescriptor, number: int) -> str:
    """The value's word; a number that this schema does not know, in digits."""
    value = type_.values_by_number.get(number)
    if value is None:
        return str(number)
    if number == 0:
        return value.name
    return value.name.removeprefix(type_.values_by_number[0].name.removesuffix("UNSPECIFIED"))
