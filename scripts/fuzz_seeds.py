#!/usr/bin/env python3
"""Write the seed corpus of a fuzz target from the tests' data: fuzz_seeds.py TARGET DIRECTORY."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GATEWAY = ROOT / "crates" / "orrery-gateway" / "tests" / "data"


def cases(name):
    return json.loads((GATEWAY / name).read_text(encoding="utf-8"))["cases"]


def item_parser():
    for case in cases("binary-json.json"):
        yield json.dumps(case["json"]).encode()
    yield b'{"id":"a","nested":{"list":[1,-0.5e300,true,null,"\\u00e9\\n"]},"id":"b"}'


def header_parser():
    for case in cases("auth-signatures.json"):
        yield b"\x00" + case["authorization"].encode()
        yield b"\x01" + case["headers"]["x-ms-date"].encode()
        yield b"\x03" + case["path"].encode()
    yield b"\x01" + b"2024-01-31T10:00:00.5Z"
    yield b"\x02" + b'["a",5,-0.0,null,true,{}]'
    yield b"\x03" + b"//addresses/?$resolveFor=dbs%2fhLEEAA%3d%3d%2fcolls%2fhLEEAI1YjgA%3d%2fdocs"


def binary_json():
    for case in cases("binary-json.json"):
        yield bytes.fromhex(case["binary"])


def hybrid_row():
    for case in cases("hybridrow-batch.json"):
        stream = bytes.fromhex(case["bytes"])
        yield stream
        # The payload of the first record: after the segment header (10 bytes) and the record header (13).
        length = int.from_bytes(stream[15:19], "little")
        yield stream[23 : 23 + length]


def direct_frame():
    """A token of each kind that clients send, by its type, and a read, a create and a query made of them."""
    table = json.loads((GATEWAY / "rntbd_tokens.json").read_text(encoding="utf-8"))
    tokens = {name: (number, kind) for name, number, kind in table["requestTokens"]}

    def token(name, value):
        number, kind = tokens[name]
        head = number.to_bytes(2, "little")
        if kind == "Byte":
            return head + bytes([0, value])
        if kind == "ULong":
            return head + b"\x02" + value.to_bytes(4, "little")
        if kind == "SmallString":
            return head + bytes([7, len(value)]) + value
        return head + (b"\x08" if kind == "String" else b"\x0b") + len(value).to_bytes(2, "little") + value

    names = token("DatabaseName", b"db") + token("CollectionName", b"c")
    key = token("PartitionKey", b'["a"]') + token("TransportRequestID", 7) + token("PayloadPresent", 0)
    resources, operations = table["resourceTypes"], table["operationTypes"]
    for operation, rest in (
        ("Read", token("DocumentName", b"1") + token("Match", b'"etag"')),
        ("Create", token("SessionToken", b"0:1#2") + token("ReturnPreference", 1)),
        ("Query", token("PageSize", 10) + token("ContinuationToken", b"next") + token("StartEpk", b"3F")),
        ("Batch", token("IsBatchAtomic", 1) + token("ConsistencyLevel", 2)),
    ):
        yield bytes([resources["Document"], operations[operation]]) + names + key + rest
    yield bytes([resources["Document"], operations["Read"]]) + token("ResourceId", bytes(range(16)))


def query_parser():
    for path in sorted((ROOT / "crates" / "orrery-query" / "tests" / "cases").glob("*.json")):
        if path.name != "datasets.json":
            for case in json.loads(path.read_text(encoding="utf-8")):
                yield case["query"].encode()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    seeds = {f.__name__: f for f in (item_parser, header_parser, binary_json, direct_frame, hybrid_row, query_parser)}
    target, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    if target not in seeds:
        sys.exit(f"there are no first inputs for {target}")
    for number, content in enumerate(seeds[target]()):
        (directory / f"seed-{number:03}").write_bytes(content)


if __name__ == "__main__":
    main()
