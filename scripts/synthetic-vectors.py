#!/usr/bin/env python3
"""Writes the vectors of synthetic keys that Rust, Python and JavaScript all run.

No implementation of ours has a part in it: dates come from datetime, roundings from decimal, hashes from the mmh3
package, and what numbers look like from a list that was read off JavaScript. Run it in an environment with mmh3:
`python scripts/synthetic-vectors.py > crates/synthetic-key/tests/data/vectors.json`.
"""

import json
import sys
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_EVEN, Decimal

import mmh3

definitions: dict = {}
keys: list = []
reads: list = []
inserts: list = []


def define(name, **fields):
    definitions[name] = {"format": 1, **fields}


def key(definition, item, expected, draw=None, version=1):
    expected = expected if isinstance(expected, list) else [expected]
    entry = {"definition": definition, "item": item, "key": expected, "version": version}
    if draw is not None:
        entry["draw"] = draw
    keys.append(entry)


def fault(definition, item, code):
    keys.append({"definition": definition, "item": item, "error": code})


def read(definition, filter, expected):
    reads.append({"definition": definition, "filter": filter, "keys": expected})


def read_all(definition, filter, prefix, first, count):
    reads.append({"definition": definition, "filter": filter, "prefix": prefix, "first": first, "count": count})


def read_fault(definition, filter, code):
    reads.append({"definition": definition, "filter": filter, "error": code})


def hash32(text):
    return mmh3.hash(text.encode(), 0, signed=False)


# The examples of the documentation, by hand.
define("device-year", kind="concatenate", parts=["/deviceId", "/date"])
key("device-year", {"deviceId": "abc-123", "date": 2018}, "abc-123-2018")
define("date-random", kind="randomSuffix", parts=["/date"], suffix={"count": 400})
for suffix in [1, 2, 7, 50, 199, 200, 201, 350, 399, 400]:
    key("date-random", {"date": "2018-08-09"}, f"2018-08-09.{suffix}", draw=suffix - 1)
read_all("date-random", {"date": "2018-08-09"}, "2018-08-09.", 1, 400)
read_all("date-random", {"date": "2018-08-09", "VIN": "any"}, "2018-08-09.", 1, 400)
read_fault("date-random", {"VIN": "any"}, "undetermined")
define("date-vin", kind="precalculatedSuffix", parts=["/date"], suffix={"of": ["/VIN"], "count": 400})
key("date-vin", {"date": "2018-08-09", "VIN": "1HGCM82633A004352"}, "2018-08-09.353")
vins = ["1HGCM82633A004352", "WVWZZZ1JZXW000001", "JH4KA7561PC008269", "5YJSA1DG9DFP14705", "1M8GDM9AXKP042788"]
vins += [f"VIN{number:014d}" for number in range(60)] + ["", "a", "ab", "abc", "abcd", "abcde", "Straße", "日本", "🚗", "a\u001fb"]
for vin in vins:
    expected = f"2018-08-09.{1 + hash32(vin) % 400}"
    key("date-vin", {"date": "2018-08-09", "VIN": vin}, expected)
    read("date-vin", {"date": "2018-08-09", "VIN": vin}, [[expected]])
read_all("date-vin", {"date": "2018-08-09"}, "2018-08-09.", 1, 400)
read_fault("date-vin", {"VIN": "a"}, "undetermined")

# Numbers without a format, as JavaScript prints them.
define("plain", kind="concatenate", parts=["/v"])
numbers = [
    (0, "0"), (-0.0, "0"), (1, "1"), (-1, "-1"), (1.0, "1"), (0.1, "0.1"), (0.5, "0.5"), (-2.75, "-2.75"),
    (123456789, "123456789"), (9007199254740991, "9007199254740991"), (9007199254740993, "9007199254740992"),
    (1e20, "100000000000000000000"), (1e21, "1e+21"), (1.5e21, "1.5e+21"), (123456789012345680000, "123456789012345680000"),
    (1e-6, "0.000001"), (1e-7, "1e-7"), (1.25e-9, "1.25e-9"), (0.000123, "0.000123"), (5e-324, "5e-324"),
    (1.7976931348623157e308, "1.7976931348623157e+308"), (0.1 + 0.2, "0.30000000000000004"), (1 / 3, "0.3333333333333333"),
    (100, "100"), (1e2, "100"), (-1e-7, "-1e-7"), (4.35, "4.35"), (2**53, "9007199254740992"), (1e23, "1e+23"),
    (18446744073709551615, "18446744073709552000"), (-9007199254740993, "-9007199254740992"),
]
for number, text in numbers:
    key("plain", {"v": number}, text)
for value, text in [("", ""), ("text", "text"), (True, "true"), (False, "false"), ("é", "é"), ("a b/c", "a b/c"), ("🚗\n", "🚗\n")]:
    key("plain", {"v": value}, text)
fault("plain", {}, "missing")
fault("plain", {"v": None}, "null")
fault("plain", {"v": []}, "nonScalar")
fault("plain", {"v": {"a": 1}}, "nonScalar")
key("plain", {"v": "x" * 2048}, "x" * 2048)
fault("plain", {"v": "x" * 2049}, "tooLong")
fault("plain", {"v": "é" * 1025}, "tooLong")
for number, text in numbers[:12]:
    suffix = 1 + hash32(text) % 400
    key("date-vin", {"date": "d", "VIN": number}, f"d.{suffix}")

# Dates.
moments = [
    ("2018-08-09", datetime(2018, 8, 9)), ("2018-08-09T14:05", datetime(2018, 8, 9, 14, 5)),
    ("2018-08-09T14:05:59", datetime(2018, 8, 9, 14, 5)), ("2018-08-09T14:05:59Z", datetime(2018, 8, 9, 14, 5)),
    ("2018-08-09T14:05:59.9999999Z", datetime(2018, 8, 9, 14, 5)), ("2018-08-09T23:30:00-01:00", datetime(2018, 8, 10, 0, 30)),
    ("2018-08-09T00:15:00+05:30", datetime(2018, 8, 8, 18, 45)), ("2020-02-29T12:00:00Z", datetime(2020, 2, 29, 12)),
    ("2000-02-29", datetime(2000, 2, 29)), ("1969-12-31T23:59:59Z", datetime(1969, 12, 31, 23, 59)),
    ("1970-01-01T00:00:00Z", datetime(1970, 1, 1)), ("0001-01-01", datetime(1, 1, 1)),
    ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59)), ("2021-01-03", datetime(2021, 1, 3)),
    ("2020-12-31", datetime(2020, 12, 31)), ("2018-12-31T23:59:00Z", datetime(2018, 12, 31, 23, 59)),
    ("2019-01-01T00:30:00+01:00", datetime(2018, 12, 31, 23, 30)), ("2026-11-16T08:00:00.5+00:00", datetime(2026, 11, 16, 8)),
]


def cut(moment, unit):
    year, week, _ = moment.isocalendar()
    return {
        "year": f"{moment.year:04}", "month": f"{moment.year:04}-{moment.month:02}", "week": f"{year:04}-W{week:02}",
        "day": f"{moment.year:04}-{moment.month:02}-{moment.day:02}",
        "hour": f"{moment.year:04}-{moment.month:02}-{moment.day:02}T{moment.hour:02}",
        "minute": f"{moment.year:04}-{moment.month:02}-{moment.day:02}T{moment.hour:02}:{moment.minute:02}",
    }[unit]


for unit in ["year", "month", "week", "day", "hour", "minute"]:
    define(f"by-{unit}", kind="concatenate", parts=[{"path": "/at", "date": unit}])
    for text, moment in moments:
        key(f"by-{unit}", {"at": text}, cut(moment, unit))
define("by-seconds", kind="concatenate", parts=[{"path": "/at", "date": "minute", "epoch": "seconds"}])
define("by-milliseconds", kind="concatenate", parts=[{"path": "/at", "date": "hour", "epoch": "milliseconds"}])
epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
for seconds in [0, 1, 59.999, 60, 1533823559, -1, -86400.5, 253402300799, -62135596800, 4102444800]:
    moment = epoch + timedelta(seconds=seconds)
    key("by-seconds", {"at": seconds}, cut(moment, "minute"))
    key("by-milliseconds", {"at": seconds * 1000}, cut(epoch + timedelta(milliseconds=seconds * 1000), "hour"))
for wrong in ["", "2018", "2018-8-9", "2018-13-01", "2018-02-29", "2018-08-09T", "2018-08-09T24:00", "2018-08-09T10:60",
              "2018-08-09T10:00:60", "2018-08-09 10:00", "2018-08-09T10:00:00.", "2018-08-09T10:00+1", "2018-08-09Z", "0000-01-01",
              "2018-08-09T10:00:00Zx", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:00-00:01", "２018-08-09", "2018-08-09\n", 2018, True]:
    fault("by-day", {"at": wrong}, "format")
for wrong in [253402300800, -62135596801, 1e300, "2018-08-09", True]:
    fault("by-seconds", {"at": wrong}, "format")

# Numbers in a format.
define("two-decimals", kind="concatenate", parts=[{"path": "/v", "number": {"decimals": 2, "width": 4}}])
define("no-decimals", kind="concatenate", parts=[{"path": "/v", "number": {"decimals": 0}}])
define("padded", kind="concatenate", parts=[{"path": "/v", "number": {"width": 8}}])
define("buckets", kind="concatenate", parts=[{"path": "/v", "number": {"bucket": 100}}])
for number in [0, 0.125, 0.375, 0.005, 1.005, 2.675, -12.5, -0.001, 99.999, 1234567.891, 9007199254740991, 0.5, 1.5, 2.5, -0.5, 1e-300]:
    for name, places, width in [("two-decimals", 2, 4), ("no-decimals", 0, 0)]:
        rounded = abs(Decimal(number)).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
        sign = "-" if number < 0 and rounded != 0 else ""
        whole, _, rest = format(rounded, "f").partition(".")
        key(name, {"v": number}, sign + whole.zfill(width) + ("." + rest if rest else ""))
for number, text in [(42, "00000042"), (-42, "-00000042"), (123456789, "123456789"), (0, "00000000"), (7.0, "00000007")]:
    key("padded", {"v": number}, text)
for number, text in [(0, "0"), (99, "0"), (99.5, "0"), (100, "100"), (-1, "-100"), (1234, "1200"), (-100, "-100")]:
    key("buckets", {"v": number}, text)
fault("padded", {"v": 1.5}, "format")
fault("padded", {"v": "42"}, "format")
fault("padded", {"v": 1e16}, "format")

# Case, fixed texts, separators, nesting, quotes.
define("folded", kind="concatenate", parts=[{"path": "/a", "case": "lower"}, {"path": "/b", "case": "upper"}], separator="_")
key("folded", {"a": "ÀBCdé", "b": "ÀBCdé"}, "Àbcdé_ÀBCDé")
key("folded", {"a": True, "b": 1e21}, "true_1E+21")
key("folded", {"a": "İſK", "b": "ı\u00df"}, "İſK_ı\u00df".replace("K", "k"))
define("nested", kind="concatenate", parts=[{"text": "v1"}, "/vehicle/vin", '/"a/b"/c', "top"], separator="")
key("nested", {"vehicle": {"vin": "X"}, "a/b": {"c": 1}, "top": "!"}, "v1X1!")
fault("nested", {"vehicle": "X", "a/b": {"c": 1}, "top": "!"}, "missing")
fault("nested", {"vehicle": [{"vin": "X"}], "a/b": {"c": 1}, "top": "!"}, "missing")
define("three", kind="concatenate", parts=["/a", "/b", "/c"], separator="::", property="/pk")
key("three", {"a": "x", "b": 2, "c": False}, "x::2::false")
key("three", {"a": "", "b": "", "c": ""}, "::::")

# What is missing, null or nested.
define("skipping", kind="concatenate", parts=["/a", "/b", "/c"], missing="skip", null="skip", nonScalar="skip")
key("skipping", {"a": 1, "c": 3}, "1-3")
key("skipping", {"a": None, "b": [], "c": 3}, "3")
fault("skipping", {}, "missing")
fault("skipping", {"a": None}, "missing")
define("texts", kind="concatenate", parts=["/a", {"path": "/b", "missing": {"text": ""}, "nonScalar": "error"}],
       missing={"text": "none"}, null={"text": "null"}, nonScalar={"text": "object"})
key("texts", {}, "none-")
key("texts", {"a": None, "b": None}, "null-null")
key("texts", {"a": {}, "b": "x"}, "object-x")
fault("texts", {"a": {}, "b": {}}, "nonScalar")
read_fault("texts", {"a": "x"}, "undetermined")
read("texts", {"a": None, "b": "y"}, [["null-y"]])

# Escaping.
define("escaped", kind="concatenate", parts=["/a", "/b"], escape=True, missing={"text": "none"})
for a, b, expected in [("a-b", "c", "a%2Db-c"), ("a", "b-c", "a-b%2Dc"), ("%", "-", "%25-%2D"), ("é", "~", "é-~"), ("%~none", "", "%25~none-")]:
    key("escaped", {"a": a, "b": b}, expected)
key("escaped", {"a": "none"}, "none-%~none")
key("escaped", {"b": "none"}, "%~none-none")
define("escaped-wide", kind="randomSuffix", parts=["/a", "/b"], escape=True, separator="·", suffix={"count": 3, "separator": "#"})
key("escaped-wide", {"a": "x·y", "b": "#1"}, "x%C2%B7y·%231#3", draw=2)
read("escaped-wide", {"a": "·", "b": "%"}, [[f"%C2%B7·%25#{n}"] for n in (1, 2, 3)])

# Suffixes.
define("from-zero", kind="randomSuffix", parts=["/d"], suffix={"count": 4, "first": 0, "separator": "/"})
for draw in range(4):
    key("from-zero", {"d": "x"}, f"x/{draw}", draw=draw)
read("from-zero", {"d": "x"}, [[f"x/{n}"] for n in range(4)])
define("only-suffix", kind="randomSuffix", parts=[], suffix={"count": 3})
key("only-suffix", {}, "2", draw=1)
key("only-suffix", {"anything": 1}, "3", draw=2)
read("only-suffix", {}, [["1"], ["2"], ["3"]])
define("two-hashed", kind="precalculatedSuffix", parts=["/d"], suffix={"of": ["/x", {"path": "/y", "case": "lower"}], "count": 1000, "hash": "murmur3-x86-32"})
for x, y in [("a", "B"), ("ab", ""), ("", "ab"), (1, 2), ("é", "É"), (True, "No")]:
    text = {True: "true"}.get(x, x) if isinstance(x, bool) else x
    folded = "".join(c.lower() if c.isascii() else c for c in str(y))
    suffix = 1 + hash32(f"{text}\x1f{folded}") % 1000
    key("two-hashed", {"d": "k", "x": x, "y": y}, f"k.{suffix}")
    read("two-hashed", {"d": "k", "x": x, "y": y}, [[f"k.{suffix}"]])
read_all("two-hashed", {"d": "k", "x": "a"}, "k.", 1, 1000)
define("one", kind="precalculatedSuffix", parts=["/d"], suffix={"of": ["/x"], "count": 1})
key("one", {"d": "k", "x": "whatever"}, "k.1")
fault("one", {"d": "k"}, "missing")
fault("one", {"d": "k", "x": None}, "null")

# Versions and renames.
vehicle = {"kind": "precalculatedSuffix", "parts": ["/date"]}
definitions["versions"] = {"format": 1, "versionProperty": "/keyVersion", "versions": [
    {"version": 1, **vehicle, "suffix": {"of": ["/VIN"], "count": 400}},
    {"version": 2, **vehicle, "suffix": {"of": ["/VIN"], "count": 800}},
]}
definitions["retired"] = {"format": 1, "versions": [
    {"version": 3, **vehicle, "suffix": {"of": ["/VIN"], "count": 400}, "retired": True},
    {"version": 7, **vehicle, "suffix": {"of": ["/VIN"], "count": 800}},
]}
for vin in vins[:20]:
    old, new = (f"2018-08-09.{1 + hash32(vin) % count}" for count in (400, 800))
    item = {"date": "2018-08-09", "VIN": vin}
    key("versions", item, new, version=2)
    key("versions", {**item, "keyVersion": 1}, old, version=1)
    read("versions", item, [[new]] if old == new else [[new], [old]])
    read("versions", {**item, "keyVersion": 1}, [[old]])
    read("retired", item, [[new]])
fault("versions", {"date": "d", "VIN": "x", "keyVersion": 3}, "version")
fault("versions", {"date": "d", "VIN": "x", "keyVersion": "1"}, "version")
definitions["renamed"] = {"format": 1, "versions": [
    {"version": 1, **vehicle, "suffix": {"of": ["/VIN"], "count": 400}},
    {"version": 2, **vehicle, "suffix": {"of": [{"path": "/vehicle/vin", "was": ["/VIN"]}], "count": 400}},
]}
suffix = 1 + hash32("X1") % 400
for item in [{"VIN": "X1"}, {"vehicle": {"vin": "X1"}}, {"VIN": "X1", "vehicle": {"vin": "X1"}}]:
    key("renamed", {"date": "d", **item}, f"d.{suffix}", version=2)
    read("renamed", {"date": "d", **item}, [[f"d.{suffix}"]])
fault("renamed", {"date": "d", "VIN": "X1", "vehicle": {"vin": "X2"}}, "ambiguous")

# Hierarchical.
define("levels", kind="hierarchical", levels=[
    {"kind": "property", "path": "/tenant"},
    {"property": "/day", "kind": "randomSuffix", "parts": [{"path": "/at", "date": "day"}], "suffix": {"count": 3}},
    {"kind": "property", "path": "/id", "null": "keep"},
])
key("levels", {"tenant": "t", "at": "2018-08-09", "id": "7"}, ["t", "2018-08-09.2", "7"], draw=1)
key("levels", {"tenant": 5, "at": "2018-08-09T01:00:00+02:00", "id": None}, [5, "2018-08-08.1", None], draw=0)
key("levels", {"tenant": True, "at": "2018-08-09", "id": 1.5}, [True, "2018-08-09.3", 1.5], draw=2)
fault("levels", {"at": "2018-08-09", "id": "7"}, "missing")
fault("levels", {"tenant": None, "at": "2018-08-09", "id": "7"}, "null")
fault("levels", {"tenant": [], "at": "2018-08-09", "id": "7"}, "nonScalar")
read("levels", {"tenant": "t"}, [["t"]])
read("levels", {"tenant": "t", "id": "7"}, [["t"]])
read("levels", {"tenant": "t", "at": "2018-08-09"}, [["t", f"2018-08-09.{n}"] for n in (1, 2, 3)])
read("levels", {"tenant": "t", "at": "2018-08-09", "id": "7"}, [["t", f"2018-08-09.{n}", "7"] for n in (1, 2, 3)])
read_fault("levels", {"at": "2018-08-09"}, "undetermined")


def insert(definition, item, result=None, draw=0, error=None):
    entry = {"definition": definition, "item": item, "draw": draw}
    entry.update({"error": error} if error else {"result": result})
    inserts.append(entry)


insert("device-year", {"deviceId": "abc-123", "date": 2018}, {"deviceId": "abc-123", "date": 2018, "partitionKey": "abc-123-2018"})
insert("three", {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3, "pk": "1::2::3"})
insert("date-random", {"date": "d"}, {"date": "d", "partitionKey": "d.8"}, draw=7)
insert("date-random", {"date": "d", "partitionKey": "d.400"}, {"date": "d", "partitionKey": "d.400"}, draw=7)
for wrong in ["d.401", "d.0", "d.007", "d.+7", "d.7 ", "e.7", "d", "", "d.", 7, None, [], "d.99999999999"]:
    insert("date-random", {"date": "d", "partitionKey": wrong}, error="contradiction")
insert("date-vin", {"date": "2018-08-09", "VIN": "1HGCM82633A004352", "partitionKey": "2018-08-09.353"},
       {"date": "2018-08-09", "VIN": "1HGCM82633A004352", "partitionKey": "2018-08-09.353"})
insert("date-vin", {"date": "2018-08-09", "VIN": "1HGCM82633A004352", "partitionKey": "2018-08-09.352"}, error="contradiction")
insert("date-vin", {"date": "2018-08-09", "partitionKey": "2018-08-09.352"}, error="missing")
vin = next(vin for vin in vins if hash32(vin) % 400 != hash32(vin) % 800)
old, new = (f"d.{1 + hash32(vin) % count}" for count in (400, 800))
insert("versions", {"date": "d", "VIN": vin}, {"date": "d", "VIN": vin, "partitionKey": new, "keyVersion": 2})
insert("versions", {"date": "d", "VIN": vin, "partitionKey": old}, {"date": "d", "VIN": vin, "partitionKey": old, "keyVersion": 1})
insert("versions", {"date": "d", "VIN": vin, "partitionKey": old, "keyVersion": 2}, error="contradiction")
insert("retired", {"date": "d", "VIN": vin, "partitionKey": old}, error="contradiction")
define("deep", kind="concatenate", parts=["/a"], property="/keys/partition")
insert("deep", {"a": 1}, {"a": 1, "keys": {"partition": "1"}})
insert("deep", {"a": 1, "keys": {"other": 2}}, {"a": 1, "keys": {"other": 2, "partition": "1"}})
insert("deep", {"a": 1, "keys": 5}, error="place")
insert("levels", {"tenant": "t", "at": "2018-08-09", "id": "7"}, {"tenant": "t", "at": "2018-08-09", "id": "7", "day": "2018-08-09.1"})

base = {"format": 1, "kind": "concatenate", "parts": ["/a"]}
random_ = {"format": 1, "kind": "randomSuffix", "parts": ["/a"]}
invalid = [
    5, [], {}, {"format": 2, "kind": "concatenate", "parts": ["/a"]}, {"format": "1", "kind": "concatenate", "parts": ["/a"]},
    {**base, "kind": "other"}, {**base, "parts": []}, {**base, "parts": "/a"}, {**base, "parts": [5]}, {**base, "parts": [""]},
    {**base, "parts": ["a/b"]}, {**base, "parts": ["//"]}, {**base, "parts": ["/a/"]}, {**base, "parts": ['/"a']},
    {**base, "parts": ['/"a"b']}, {**base, "parts": [{"path": "/a", "colour": 1}]}, {**base, "extra": 1}, {**base, "separator": 5},
    {**base, "escape": "yes"}, {**base, "escape": True, "separator": ""}, {**base, "escape": True, "separator": "x"},
    {**base, "escape": True, "separator": "%"}, {**base, "escape": True, "missing": "skip"}, {**base, "missing": "ignore"},
    {**base, "missing": None}, {**base, "property": None}, {**base, "property": "/a"}, {**base, "suffix": {"count": 3}},
    {**base, "parts": [{"text": "x", "case": "lower"}]}, {**base, "parts": [{"path": "/a", "case": "Lower"}]},
    {**base, "parts": [{"path": "/a", "date": "second"}]}, {**base, "parts": [{"path": "/a", "epoch": "seconds"}]},
    {**base, "parts": [{"path": "/a", "date": "day", "number": {}}]}, {**base, "parts": [{"path": "/a", "number": {"decimals": 16}}]},
    {**base, "parts": [{"path": "/a", "number": {"bucket": 0}}]}, {**base, "parts": [{"path": "/a", "number": {"width": 1.5}}]},
    {**base, "parts": ["/a"] * 33}, random_, {**random_, "suffix": {}}, {**random_, "suffix": {"count": 0}},
    {**random_, "suffix": {"count": 100001}}, {**random_, "suffix": {"count": 3, "of": ["/b"]}}, {**random_, "suffix": {"count": 3, "hash": "murmur3-x86-32"}},
    {**random_, "suffix": {"count": 3, "first": -1}}, {**random_, "kind": "precalculatedSuffix", "suffix": {"count": 3}},
    {**random_, "kind": "precalculatedSuffix", "suffix": {"count": 3, "of": ["/b"], "hash": "md5"}},
    {"format": 1, "kind": "property", "path": "/a"}, {"format": 1, "kind": "hierarchical", "levels": []},
    {"format": 1, "kind": "hierarchical", "levels": [{"kind": "property", "path": "/a"}]},
    {"format": 1, "kind": "hierarchical", "levels": [{"kind": "property", "path": "/a"}, {"kind": "property", "path": "/a"}]},
    {"format": 1, "kind": "hierarchical", "levels": [{"kind": "property", "path": "/a"}, {"kind": "concatenate", "parts": ["/b"]}]},
    {"format": 1, "versions": []}, {"format": 1, "versions": [{"kind": "concatenate", "parts": ["/a"]}]},
    {"format": 1, "versions": [{"version": 1, "kind": "concatenate", "parts": ["/a"], "retired": True}]},
    {"format": 1, "versions": [{"version": 1, "kind": "concatenate", "parts": ["/a"], "retired": None}]},
    {"format": 1, "versions": [{"version": 1, "kind": "concatenate", "parts": ["/a"]}, {"version": 1, "kind": "concatenate", "parts": ["/b"]}]},
    {"format": 1, "kind": "concatenate", "parts": ["/a"], "versions": [{"version": 1, "kind": "concatenate", "parts": ["/a"]}]},
    {"format": 1, "versionProperty": "/partitionKey", "kind": "concatenate", "parts": ["/a"]},
    {**base, "parts": [{"path": "/a", "was": ["/partitionKey"]}]}, {**base, "parts": [{"path": "/a", "was": [None]}]},
]

hashes = [{"text": text, "hash": hash32(text)} for text in vins]

out = {"definitions": definitions, "keys": keys, "reads": reads, "inserts": inserts, "invalid": invalid, "hashes": hashes}
lines = []
for name, section in out.items():
    pairs = section.items() if isinstance(section, dict) else ((None, entry) for entry in section)
    rows = [(f"{json.dumps(key)}: " if key is not None else "") + json.dumps(value, ensure_ascii=False) for key, value in pairs]
    brackets = "{}" if isinstance(section, dict) else "[]"
    lines.append(f'"{name}": {brackets[0]}\n' + ",\n".join(rows) + f"\n{brackets[1]}")
sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
print(f"{len(keys)} keys, {len(reads)} reads, {len(inserts)} inserts, {len(invalid)} invalid", file=sys.stderr)
