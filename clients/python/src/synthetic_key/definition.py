"""Parse a definition. Unknown fields are errors: a misspelt field would silently change keys."""

from __future__ import annotations

from typing import Any

SUFFIXES_MAX = 100_000
PARTS_MAX = 32
VERSIONS_MAX = 64

_PART_FIELDS = {"path", "was", "text", "date", "epoch", "number", "case", "missing", "null", "nonScalar"}
_MADE_FIELDS = {"kind", "parts", "separator", "escape", "suffix", "missing", "null", "nonScalar"}
_UNITS = ("year", "month", "week", "day", "hour", "minute")

Path = tuple  # of names, outermost first


class DefinitionError(ValueError):
    """An invalid definition. ``at`` is the place of the error."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(f"{at}: {message}")
        self.at = at


def parse_path(text: str) -> Path:
    if not text:
        raise ValueError("expected a path such as /date")
    if not text.startswith("/"):
        if "/" in text:
            raise ValueError(f"the path {text} must start with a slash")
        return (text,)
    names = []
    rest = text[1:]
    while True:
        if rest.startswith('"'):
            name, quote, after = rest[1:].partition('"')
            if not quote:
                raise ValueError(f"the path {text} has an unterminated quote")
        else:
            end = rest.find("/")
            name, after = (rest, "") if end < 0 else (rest[:end], rest[end:])
        if not name:
            raise ValueError(f"the path {text} has an empty name")
        names.append(name)
        if not after:
            return tuple(names)
        if not after.startswith("/"):
            raise ValueError(f"the path {text} has text after a quoted name")
        rest = after[1:]


def show_path(path: Path) -> str:
    return "".join(f'/"{name}"' if "/" in name else f"/{name}" for name in path)


def parse(source: Any) -> dict:
    fields = _object(source, "definition")
    for name in ("property", "versionProperty"):
        if name in fields:
            _present(fields[name], name)
    if _whole(fields.get("format"), "format", 1, 1) is None:
        raise DefinitionError("format", "must be 1")
    shared = _path(fields.get("property"), "property") or ("partitionKey",)
    version_property = _path(fields.get("versionProperty"), "versionProperty")
    strategies = []
    if "versions" in fields:
        _known(fields, {"format", "property", "versionProperty", "versions"}, "definition")
        versions = _array(fields["versions"], "versions")
        if not 1 <= len(versions) <= VERSIONS_MAX:
            raise DefinitionError("versions", f"must be 1 to {VERSIONS_MAX}")
        for index, version in enumerate(versions):
            at = f"versions[{index}]"
            inner = dict(_object(version, at))
            number = _whole(inner.pop("version", None), f"{at}.version", 1, 2**32 - 1)
            if number is None:
                raise DefinitionError(f"{at}.version", "is required")
            retired = _flag(inner.pop("retired", False), f"{at}.retired")
            strategies.append({"version": number, "retired": retired, "levels": _levels(inner, shared, at)})
        strategies.sort(key=lambda strategy: strategy["version"])
        if len({strategy["version"] for strategy in strategies}) < len(strategies):
            raise DefinitionError("versions", "two versions have the same number")
        if strategies[-1]["retired"]:
            raise DefinitionError("versions", "the newest version is retired, so no key can be built")
    else:
        inner = {name: value for name, value in fields.items() if name not in ("format", "property", "versionProperty")}
        strategies.append({"version": 1, "retired": False, "levels": _levels(inner, shared, "definition")})
    targets = [[level["property"] for level in strategy["levels"]] for strategy in strategies]
    if any(other != targets[0] for other in targets):
        raise DefinitionError("versions", "all versions must store their keys under the same properties")
    if version_property in targets[0]:
        raise DefinitionError("versionProperty", "must not be the key's own property")
    _share_names(strategies)
    made = [level["property"] for strategy in strategies for level in strategy["levels"] if level["kind"] == "made"]
    for part in _parts(strategies):
        for name in part["names"]:
            if name in made:
                raise DefinitionError("parts", f"{show_path(name)} is the key itself")
    return {"strategies": strategies, "version_property": version_property}


def _parts(strategies: list) -> list:
    parts = []
    for strategy in strategies:
        for level in strategy["levels"]:
            if level["kind"] == "made":
                hashed = (level["suffix"] or {}).get("of") or []
                parts += [part for part in level["parts"] + hashed if part["fixed"] is None]
    return parts


def _share_names(strategies: list) -> None:
    classes: list = []
    for part in _parts(strategies):
        merged = set(part["names"])
        apart = []
        for other in classes:
            if other & merged:
                merged |= other
            else:
                apart.append(other)
        classes = apart + [merged]
    for part in _parts(strategies):
        known = next(names for names in classes if part["names"][0] in names)
        part["names"] += sorted(known - set(part["names"]))


def _levels(fields: dict, shared: Path, at: str) -> list:
    kind = _text(fields.get("kind"), f"{at}.kind")
    if kind != "hierarchical":
        if kind == "property":
            raise DefinitionError(f"{at}.kind", "a plain property is only allowed as a level of a hierarchical key")
        return [{"property": shared, **_maker(fields, at)}]
    _known(fields, {"kind", "levels"}, at)
    if "levels" not in fields:
        raise DefinitionError(f"{at}.levels", "is required")
    inner = _array(fields["levels"], f"{at}.levels")
    if not 2 <= len(inner) <= 3:
        raise DefinitionError(f"{at}.levels", "must have two or three elements")
    levels: list = []
    for index, level in enumerate(inner):
        place = f"{at}.levels[{index}]"
        own = dict(_object(level, place))
        if _text(own.get("kind"), f"{place}.kind") == "property":
            _known(own, {"kind", "path", "null"}, place)
            target = _path(own.get("path"), f"{place}.path")
            if target is None:
                raise DefinitionError(f"{place}.path", "is required")
            null = _text(own.get("null"), f"{place}.null")
            if null not in (None, "error", "keep"):
                raise DefinitionError(f"{place}.null", "must be error or keep")
            made = {"property": target, "kind": "existing", "keep_null": null == "keep"}
        else:
            target = _path(own.pop("property", None), f"{place}.property")
            if target is None:
                raise DefinitionError(f"{place}.property", "is required")
            made = {"property": target, **_maker(own, place)}
        if any(other["property"] == target for other in levels):
            raise DefinitionError(place, "two levels have the same property")
        levels.append(made)
    return levels


def _maker(fields: dict, at: str) -> dict:
    _known(fields, _MADE_FIELDS, at)
    kind = _text(fields.get("kind"), f"{at}.kind")
    separator = _text(fields.get("separator"), f"{at}.separator")
    separator = "-" if separator is None else separator
    escape = _flag(fields.get("escape", False), f"{at}.escape")
    defaults = _treatments(fields, at, {"missing": "error", "null": "error", "nonScalar": "error"})
    parts = _part_list(fields.get("parts"), f"{at}.parts", defaults)
    if kind == "concatenate":
        if "suffix" in fields:
            raise DefinitionError(f"{at}.suffix", "is not allowed for a concatenation")
        suffix = None
    elif kind in ("randomSuffix", "precalculatedSuffix"):
        suffix = _suffix(fields, at, defaults, kind == "precalculatedSuffix")
    else:
        kinds = "concatenate, randomSuffix, precalculatedSuffix or hierarchical"
        raise DefinitionError(f"{at}.kind", f"must be {kinds}")
    if not parts and suffix is None:
        raise DefinitionError(f"{at}.parts", "at least one part is required")
    escaped = _escaped_characters(separator, suffix, parts, at) if escape else None
    return {"kind": "made", "parts": parts, "separator": separator, "escaped": escaped, "suffix": suffix}


def _escaped_characters(separator: str, suffix: Any, parts: list, at: str) -> str:
    second = suffix["separator"] if suffix else separator

    def ambiguous(text: str) -> bool:
        return not text or any((character.isascii() and character.isalnum()) or character in "%~" for character in text)

    if ambiguous(separator) or ambiguous(second):
        raise DefinitionError(
            f"{at}.separator", "with escape, separators must not be empty or contain letters, digits, % or ~"
        )
    if any("skip" in (part["missing"], part["null"], part["nonScalar"]) for part in parts):
        raise DefinitionError(f"{at}.escape", "with escape, no part may be skipped")
    return "%" + separator + second


def _suffix(fields: dict, at: str, defaults: dict, hashed: bool) -> dict:
    at = f"{at}.suffix"
    if "suffix" not in fields:
        raise DefinitionError(at, "is required")
    own = _object(fields["suffix"], at)
    _known(own, {"count", "first", "separator", "of", "hash"}, at)
    count = _whole(own.get("count"), f"{at}.count", 1, SUFFIXES_MAX)
    if count is None:
        raise DefinitionError(f"{at}.count", "is required")
    first = _whole(own.get("first"), f"{at}.first", 0, 1_000_000_000)
    separator = _text(own.get("separator"), f"{at}.separator")
    of = _part_list(own.get("of"), f"{at}.of", defaults)
    if hashed == (not of):
        message = "at least one property is required" if hashed else "a random suffix is not computed from properties"
        raise DefinitionError(f"{at}.of", message)
    if _text(own.get("hash"), f"{at}.hash") not in ((None, "murmur3-x86-32") if hashed else (None,)):
        raise DefinitionError(f"{at}.hash", "must be murmur3-x86-32, for a pre-calculated suffix")
    return {
        "count": count,
        "first": 1 if first is None else first,
        "separator": "." if separator is None else separator,
        "of": of if hashed else None,
    }


def _treatments(fields: dict, at: str, defaults: dict) -> dict:
    found = {}
    for name, default in defaults.items():
        value = fields.get(name, default)
        if isinstance(value, dict) and set(value) == {"text"} and isinstance(value["text"], str):
            found[name] = value
        elif isinstance(value, str) and value in ("error", "skip"):
            found[name] = value
        else:
            raise DefinitionError(f"{at}.{name}", 'must be error, skip or {"text": …}')
    return found


def _part_list(value: Any, at: str, defaults: dict) -> list:
    if value is None:
        return []
    parts = _array(value, at)
    if len(parts) > PARTS_MAX:
        raise DefinitionError(at, f"at most {PARTS_MAX} are allowed")
    return [_part(part, f"{at}[{index}]", defaults) for index, part in enumerate(parts)]


def _part(value: Any, at: str, defaults: dict) -> dict:
    fields = {"path": value} if isinstance(value, str) else _object(value, at)
    _known(fields, _PART_FIELDS, at)
    treatments = _treatments(fields, at, defaults)
    fixed = _text(fields.get("text"), f"{at}.text")
    names: list = []
    if fixed is not None:
        if len(fields) > 1:
            raise DefinitionError(at, "a fixed text must not have other fields")
    else:
        own = _path(fields.get("path"), f"{at}.path")
        if own is None:
            raise DefinitionError(f"{at}.path", "is required")
        names = [own]
        if "was" in fields:
            names += [_path(_present(name, f"{at}.was"), f"{at}.was") for name in _array(fields["was"], f"{at}.was")]
            if len(names) > PARTS_MAX:
                raise DefinitionError(f"{at}.was", f"at most {PARTS_MAX} are allowed")
    case = _text(fields.get("case"), f"{at}.case")
    if case not in (None, "lower", "upper"):
        raise DefinitionError(f"{at}.case", "must be lower or upper")
    return {"fixed": fixed, "names": names, "case": case, **_format(fields, at), **treatments}


def _format(fields: dict, at: str) -> dict:
    unit = _text(fields.get("date"), f"{at}.date")
    if unit is not None and unit not in _UNITS:
        raise DefinitionError(f"{at}.date", "must be year, month, week, day, hour or minute")
    epoch = _text(fields.get("epoch"), f"{at}.epoch")
    if epoch not in (None, "seconds", "milliseconds"):
        raise DefinitionError(f"{at}.epoch", "must be seconds or milliseconds")
    if unit is not None and "number" in fields:
        raise DefinitionError(f"{at}.number", "a part must not be both a date and a number")
    if unit is None and epoch is not None:
        raise DefinitionError(f"{at}.epoch", "is only allowed with date")
    number = None
    if "number" in fields:
        place = f"{at}.number"
        own = _object(fields["number"], place)
        _known(own, {"decimals", "width", "bucket"}, place)
        number = {
            "decimals": _whole(own.get("decimals"), f"{place}.decimals", 0, 15),
            "width": _whole(own.get("width"), f"{place}.width", 0, 32) or 0,
            "bucket": _whole(own.get("bucket"), f"{place}.bucket", 1, 1_000_000_000),
        }
    return {"date": unit, "epoch": epoch, "number": number}




def _known(fields: dict, names: set, at: str) -> None:
    for name, value in fields.items():
        if name not in names:
            raise DefinitionError(f"{at}.{name}", "is not a known field")
        if value is None:
            raise DefinitionError(f"{at}.{name}", "must not be null")


def _present(value: Any, at: str) -> Any:
    if value is None:
        raise DefinitionError(at, "must be a string")
    return value


def _of_type(value: Any, types: Any, at: str, expected: str) -> Any:
    if not isinstance(value, types):
        raise DefinitionError(at, f"must be {expected}")
    return value


def _object(value: Any, at: str) -> dict:
    return _of_type(value, dict, at, "an object")


def _array(value: Any, at: str) -> list:
    return list(_of_type(value, (list, tuple), at, "an array"))


def _text(value: Any, at: str) -> "str | None":
    return _of_type(value, (str, type(None)), at, "a string")


def _flag(value: Any, at: str) -> bool:
    return _of_type(value, bool, at, "true or false")


def _whole(value: Any, at: str, least: int, most: int) -> "int | None":
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or value != int(value):
        raise DefinitionError(at, f"must be a whole number from {least} to {most}")
    return int(value)


def _path(value: Any, at: str) -> "Path | None":
    text = _text(value, at)
    if text is None:
        return None
    try:
        return parse_path(text)
    except ValueError as error:
        raise DefinitionError(at, str(error)) from None
