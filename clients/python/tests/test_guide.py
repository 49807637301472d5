"""The code in docs/partition-keys.md runs as it stands there."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))


class Guide(unittest.TestCase):
    def test_examples(self):
        text = (ROOT / "docs" / "partition-keys.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertGreaterEqual(len(blocks), 5)
        for block in blocks:
            exec(compile(block, "docs/partition-keys.md", "exec"), {})


if __name__ == "__main__":
    unittest.main()
