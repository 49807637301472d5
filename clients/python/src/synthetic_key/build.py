"""Build, validate and enumerate keys."""

from __future__ import annotations

import copy
import random
from typing import Any, Callable, Iterator, NamedTuple

from . import definition as definitions
from .definition import show_path
from .errors import KeyError_
from .murmur3 import x86_32
from .texts import date_formatted, number_formatted, number_text

KEY_BYTES_MAX = 2048
KEYS_MAX = 100_000
_MISSING = object()
_HASHED_SEPARATOR = "\x1f"

#: A number of ``range(bound)``, each as likely as the others.
Randomness = Callable[[int], int]


class Key(NamedTuple):
    """A key, or the prefix of one that a read visits."""

    version: int
    components: list

    @property
    def value(self) -> Any:
        """The partition key to pass to the SDK: the text of a plain key, the list of a hierarchical one."""
        return self.components[0] if len(self.components) == 1 else self.components


class Definition:
    """A definition of a synthetic key; ``source`` is the parsed JSON. See docs/partition-keys.md for its fields."""

    def __init__(self, source: dict) -> None:
        parsed = definitions.parse(source)
        self.source = copy.deepcopy(source)
        self._strategies = parsed["strategies"]
        self._version_property = parsed["version_property"]

    @property
    def key_paths(self) -> "list[str]":
        """The paths of the container's partition key, one per level."""
        return [show_path(level["property"]) for level in self._strategies[-1]["levels"]]

    def apply(self, item: dict, below: "Randomness | None" = None) -> Key:
        """The key that this item gets if it is written now. An existing key in the item is ignored."""
        strategy = self._told_version(item) or self._strategies[-1]
        below = below or random.SystemRandom().randrange
        return Key(strategy["version"], [_make(level, item, below) for level in strategy["levels"]])

    def key_of(self, item: dict, below: "Randomness | None" = None) -> Key:
        """The key of an item: its existing one, if a recorded version can produce it, or a new one."""
        below = below or random.SystemRandom().randrange
        strategy = self._told_version(item)
        if strategy is not None:
            return _complete(strategy, item, below)
        made = [level for level in self._strategies[-1]["levels"] if level["kind"] == "made"]
        if all(_property(item, level["property"]) is _MISSING for level in made):
            return _complete(self._strategies[-1], item, below)
        first_error = None
        for strategy in self._live():
            try:
                return _complete(strategy, item, below)
            except KeyError_ as error:
                first_error = first_error or error
        assert first_error is not None
        raise first_error

    def insert_into(self, item: dict, below: "Randomness | None" = None) -> Key:
        """Store the key in the item, under the definition's properties, unless it is there already."""
        key = self.key_of(item, below)
        for level, component in zip(self._strategies[-1]["levels"], key.components):
            _place(item, level["property"], component)
        if self._version_property is not None:
            _place(item, self._version_property, key.version)
        return key

    def keys_for(self, filter: dict) -> "list[Key]":
        """The keys that a read of items with these properties must visit, newest version first, without duplicates."""
        told = self._told_version(filter)
        keys: "dict[str, Key]" = {}
        for strategy in self._live():
            if told is not None and strategy is not told:
                continue
            for components in _possible(strategy, filter):
                keys.setdefault(repr([(type(one).__name__, one) for one in components]), Key(strategy["version"], components))
                if len(keys) > KEYS_MAX:
                    raise _too_many()
        return list(keys.values())

    def _live(self) -> Iterator[dict]:
        return (strategy for strategy in reversed(self._strategies) if not strategy["retired"])

    def _told_version(self, item: dict) -> "dict | None":
        if self._version_property is None:
            return None
        found = _property(item, self._version_property)
        if found is _MISSING:
            return None
        if not isinstance(found, bool) and isinstance(found, (int, float)):
            for strategy in self._live():
                if strategy["version"] == found:
                    return strategy
        shown = show_path(self._version_property)
        raise KeyError_("version", f"{shown} names version {found!r}, which the definition does not record as in use")


def _property(item: Any, path: tuple) -> Any:
    for name in path:
        if not isinstance(item, dict) or name not in item:
            return _MISSING
        item = item[name]
    return item


def _complete(strategy: dict, item: dict, below: Randomness) -> Key:
    return Key(strategy["version"], [_take_or_make(level, item, below) for level in strategy["levels"]])


def _possible(strategy: dict, filter: dict) -> list:
    keys: list = [[]]
    for index, level in enumerate(strategy["levels"]):
        try:
            choices = _choices(level, filter)
        except KeyError_ as error:
            if error.code == "undetermined" and index > 0:
                break
            raise
        if len(keys) * len(choices) > KEYS_MAX:
            raise _too_many()
        keys = [key + [choice] for key in keys for choice in choices]
    return keys


def _make(level: dict, item: dict, below: Randomness) -> Any:
    if level["kind"] == "existing":
        return _existing(level, item)
    base = _base(level, item)
    suffix = level["suffix"]
    if suffix is None:
        return _bounded(base)
    number = below(suffix["count"]) if suffix["of"] is None else _hashed(suffix["of"], item) % suffix["count"]
    return _bounded(_suffixed(suffix, base, number))


def _take_or_make(level: dict, item: dict, below: Randomness) -> Any:
    found = _property(item, level["property"])
    if found is _MISSING or level["kind"] == "existing":
        return _make(level, item, below)
    suffix = level["suffix"]
    if suffix is not None and suffix["of"] is None:
        base = _base(level, item)
        prefix = base + suffix["separator"] if base else ""
        if isinstance(found, str) and found.startswith(prefix):
            number = found[len(prefix) :]
            if (
                number.isascii()
                and number.isdigit()
                and len(number) <= 10
                and str(int(number)) == number
                and suffix["first"] <= int(number) < suffix["first"] + suffix["count"]
            ):
                return _bounded(found)
        expected = f'"{prefix}{suffix["first"]}" to "{prefix}{suffix["first"] + suffix["count"] - 1}"'
    else:
        made = _make(level, item, below)
        if isinstance(found, str) and found == made:
            return made
        expected = repr(made)
    shown = show_path(level["property"])
    raise KeyError_("contradiction", f"{shown} is {str(found)[:100]!r}, but the definition yields {expected} for this item")


def _choices(level: dict, filter: dict) -> list:
    def undetermined(path: tuple) -> KeyError_:
        return KeyError_("undetermined", f"the filter says nothing about {show_path(path)}, so the item may have any key")

    if level["kind"] == "existing":
        if _property(filter, level["property"]) is _MISSING:
            raise undetermined(level["property"])
        return [_existing(level, filter)]
    for part in level["parts"]:
        if _is_absent(part, filter):
            raise undetermined(part["names"][0])
    suffix = level["suffix"]
    if suffix is None:
        return [_bounded(_base(level, filter))]
    if suffix["of"] is not None and not any(_is_absent(part, filter) for part in suffix["of"]):
        numbers: Any = [_hashed(suffix["of"], filter) % suffix["count"]]
    else:
        numbers = range(suffix["count"])
    base = _base(level, filter)
    return [_bounded(_suffixed(suffix, base, number)) for number in numbers]


def _base(level: dict, item: dict) -> str:
    texts = []
    for part in level["parts"]:
        found = _text(part, item)
        if found is None:
            continue
        text, substitute = found
        if level["escaped"] is not None:
            text = ("%~" if substitute else "") + _escape(text, level["escaped"])
        texts.append(text)
    if level["parts"] and not texts:
        raise _missing(level["parts"][0])
    return level["separator"].join(texts)


def _suffixed(suffix: dict, base: str, number: int) -> str:
    return f"{base}{suffix['separator'] if base else ''}{suffix['first'] + number}"


def _hashed(parts: list, item: dict) -> int:
    found = [text[0] for text in (_text(part, item) for part in parts) if text is not None]
    if not found:
        raise _missing(parts[0])
    return x86_32(_utf8(_HASHED_SEPARATOR.join(found)))


def _missing(part: dict) -> KeyError_:
    return KeyError_("missing", f"the item has no property {_shown(part)}, which its key is built from")


def _shown(part: dict) -> str:
    return show_path(part["names"][0]) if part["names"] else ""


def _part_property(part: dict, item: dict) -> Any:
    found = _MISSING
    for name in part["names"]:
        other = _property(item, name)
        if other is _MISSING:
            continue
        if found is _MISSING:
            found = other
        elif not _same(found, other):
            raise KeyError_("ambiguous", f"the property {_shown(part)} has different values under its current and earlier names")
    return found


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, (dict, list)) and isinstance(right, (dict, list)):
        return True
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _is_absent(part: dict, item: dict) -> bool:
    if part["fixed"] is not None:
        return False
    try:
        return _part_property(part, item) is _MISSING
    except KeyError_:
        return False


def _text(part: dict, item: dict) -> "tuple[str, bool] | None":
    if part["fixed"] is not None:
        return part["fixed"], False
    value = _part_property(part, item)
    shown = _shown(part)
    if value is _MISSING:
        treatment, error = part["missing"], _missing(part)
    elif value is None:
        treatment = part["null"]
        error = KeyError_("null", f"the property {shown}, which the key is built from, is null")
    elif isinstance(value, (dict, list)):
        treatment = part["nonScalar"]
        error = KeyError_("nonScalar", f"the property {shown}, which the key is built from, is an object or an array")
    else:
        return _scalar_text(part, value, shown), False
    if treatment == "error":
        raise error
    return None if treatment == "skip" else (treatment["text"], True)


def _scalar_text(part: dict, value: Any, shown: str) -> str:
    is_number = not isinstance(value, (bool, str))
    if is_number:
        try:
            value = float(value)
        except OverflowError:
            value = float("inf")
    if part["date"] is not None:
        text = date_formatted(value, part["date"], part["epoch"], shown)
    elif part["number"] is not None:
        if not is_number:
            raise KeyError_("format", f"the property {shown} does not fit its format: expected a number")
        text = number_formatted(value, part["number"], shown)
    elif is_number:
        text = number_text(value, shown)
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = value
    if part["case"] is not None:
        # ASCII letters only: other letters fold differently from version to version of Unicode.
        fold = str.lower if part["case"] == "lower" else str.upper
        text = "".join(fold(character) if character.isascii() else character for character in text)
    return text


def _escape(text: str, escaped: str) -> str:
    return "".join(
        "".join(f"%{byte:02X}" for byte in _utf8(character)) if character in escaped else character
        for character in text
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise KeyError_("format", "a string is not well-formed Unicode") from None


def _bounded(text: str) -> str:
    if len(_utf8(text)) > KEY_BYTES_MAX:
        raise KeyError_("tooLong", f"the key is longer than {KEY_BYTES_MAX} bytes")
    return text


def _too_many() -> KeyError_:
    return KeyError_("tooMany", f"the read would visit more than {KEYS_MAX} keys")


def _existing(level: dict, item: dict) -> Any:
    value = _property(item, level["property"])
    shown = show_path(level["property"])
    if value is _MISSING:
        raise KeyError_("missing", f"the item has no property {shown}, which its key is built from")
    if value is None and not level["keep_null"]:
        raise KeyError_("null", f"the property {shown}, which the key is built from, is null")
    if isinstance(value, (dict, list)):
        raise KeyError_("nonScalar", f"the property {shown}, which the key is built from, is an object or an array")
    if isinstance(value, str):
        return _bounded(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise KeyError_("format", f"the property {shown} does not fit its format: the number is not finite")
    return value


def _place(item: dict, path: tuple, value: Any) -> None:
    inner = item
    for name in path[:-1]:
        inner = inner.setdefault(name, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        raise KeyError_("place", f"{show_path(path)} cannot be stored: its parent is not an object")
    inner[path[-1]] = value
