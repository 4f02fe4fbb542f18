"""Fields of a record, checked for type. `what` in an error is the field as the user wrote it."""

import json
import math
import struct

from errors import bad_row
from files.record import kind_of_value


def unused(record, used):
    """Keys that a format does not read."""
    return tuple(sorted(str(key) for key in record.values if key not in used))


def text(record, key, default=None):
    """A string; `default` for a field that is not there or null, when there is one."""
    value = record.values.get(key)
    if value is None and default is not None:
        return default
    return checked_text(record, f'"{key}"', value)


def checked_text(record, what, value):
    if not isinstance(value, str):
        raise bad_row(record, f"{what} must be a string, this is {kind_of_value(value)}")
    return value


def as_structure(value):
    """A list or an object, or None. Tables hold it as text; text that is empty is None."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError):
        return value


def structure(record, key):
    """as_structure of a field; an error for text that is not JSON."""
    value = as_structure(record.values.get(key))
    if isinstance(value, str):
        raise bad_row(record, f'"{key}" is a string that is not JSON')
    return value


def checked_list(record, what, value):
    if not isinstance(value, list):
        raise bad_row(record, f"{what} must be a list, this is {kind_of_value(value)}")
    return value


def checked_object(record, what, value):
    if not isinstance(value, dict):
        raise bad_row(record, f"{what} must be an object, this is {kind_of_value(value)}")
    return value


def boolean(record, key):
    """True, False, or None. Tables hold it as text; text that is empty is None."""
    value = record.values.get(key)
    if isinstance(value, str):
        value = {"true": True, "false": False, "": None}.get(value.strip().lower(), value)
    if value is not None and not isinstance(value, bool):
        raise bad_row(record, f'"{key}" must be true or false')
    return value


def weight(record, what, value):
    """A loss weight, rounded to float32, which is what becomes of it: one that this makes infinite
    or 0 is refused."""
    if type(value) in (int, float) and value >= 0:
        try:
            (rounded,) = struct.unpack("f", struct.pack("f", float(value)))
        except OverflowError:
            rounded = math.inf
        if math.isfinite(rounded) and bool(rounded) == bool(value):
            return rounded
    raise bad_row(record, f"{what} must be a finite number, 0 or more, in float32; 0 = not trained")


def tools(record):
    """The functions that the assistant may call, as a list of objects, or None. An empty list is
    none, and so it is for templates, which ask `if tools`."""
    value = structure(record, "tools")
    if value is None or value == []:
        return None
    for index, tool in enumerate(checked_list(record, '"tools"', value)):
        checked_object(record, f'"tools"[{index}]', tool)
    return value


def template_variables(record):
    """TRL's per-row "chat_template_kwargs"."""
    value = structure(record, "chat_template_kwargs")
    return {} if value is None else checked_object(record, '"chat_template_kwargs"', value)
