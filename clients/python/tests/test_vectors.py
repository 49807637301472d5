"""The vectors that all implementations share, and what is Python's own. Needs nothing but Python: `python -m unittest`."""

import copy
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))

from synthetic_key import Definition, DefinitionError, SyntheticKeyError, x86_32  # noqa: E402

VECTORS = json.loads((ROOT / "crates/synthetic-key/tests/data/vectors.json").read_text(encoding="utf-8"))


def attempt(call):
    try:
        return call()
    except SyntheticKeyError as error:
        return {"error": error.code}


class Vectors(unittest.TestCase):
    def setUp(self):
        self.definitions = {name: Definition(source) for name, source in VECTORS["definitions"].items()}

    def test_hashes(self):
        for vector in VECTORS["hashes"]:
            self.assertEqual(x86_32(vector["text"].encode()), vector["hash"], vector)

    def test_keys(self):
        self.assertGreaterEqual(len(VECTORS["keys"]), 300)
        for vector in VECTORS["keys"]:
            definition = self.definitions[vector["definition"]]
            found = attempt(lambda: definition.apply(vector["item"], lambda _: vector.get("draw", 0)))
            if "error" in vector:
                self.assertEqual(found, {"error": vector["error"]}, vector)
            else:
                self.assertEqual([vector["version"], vector["key"]], list(found), vector)

    def test_reads(self):
        for vector in VECTORS["reads"]:
            found = attempt(lambda: self.definitions[vector["definition"]].keys_for(vector["filter"]))
            if "error" in vector:
                self.assertEqual(found, {"error": vector["error"]}, vector)
                continue
            if "prefix" in vector:
                first, count = vector["first"], vector["count"]
                expected = [[f"{vector['prefix']}{number}"] for number in range(first, first + count)]
            else:
                expected = vector["keys"]
            self.assertEqual([key.components for key in found], expected, vector)

    def test_inserts(self):
        for vector in VECTORS["inserts"]:
            item = copy.deepcopy(vector["item"])
            found = attempt(
                lambda: self.definitions[vector["definition"]].insert_into(item, lambda _: vector["draw"])
            )
            if "error" in vector:
                self.assertEqual(found, {"error": vector["error"]}, vector)
            else:
                self.assertEqual(item, vector["result"], vector)

    def test_invalid_definitions(self):
        for source in VECTORS["invalid"]:
            with self.assertRaises(DefinitionError, msg=source):
                Definition(source)

    def test_randomness_is_uniform_without_being_told(self):
        definition = self.definitions["date-random"]
        drawn = {definition.apply({"date": "d"}).value for _ in range(20_000)}
        self.assertEqual(drawn, {f"d.{number}" for number in range(1, 401)})

    def test_what_only_python_can_pass(self):
        plain = self.definitions["plain"]
        for value in (float("nan"), float("inf"), 10**400, "\ud800"):
            self.assertEqual(attempt(lambda: plain.apply({"v": value})), {"error": "format"}, value)


if __name__ == "__main__":
    unittest.main()
