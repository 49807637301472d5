"""Every command in README and the documents runs as written.

Each page is a test: its blocks of `sh`, `console`, `python` and `js` run in order, as a reader would type them, on a
machine where nothing else runs (enclosure.sh). The output of `console` blocks is compared. blocks.py lists the comments
that exempt a block; the last test prints them.
"""

import json
import os
import pathlib
import subprocess
import unittest

import blocks

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENCLOSURE = [str(HERE / "enclosure.sh")]
ENCLOSED = subprocess.run([*ENCLOSURE, "--check"], check=False).returncode == 0
ONLY = os.environ.get("ORRERY_PAGES", "").split()


class Pages(unittest.TestCase):
    """One test for each page is added below."""


class Blocks(unittest.TestCase):
    def test_every_block_says_what_it_is(self):
        found = [problem for page in blocks.pages(ROOT) for problem in blocks.problems(page, ROOT)]
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_what_is_not_run_is_listed(self):
        for page in blocks.pages(ROOT):
            for block in blocks.blocks(page.read_text(encoding="utf-8")):
                if "not run" in block.directives:
                    print(f"not run: {blocks.title(page, ROOT)}:{block.line}: {block.directives['not run']}")


def add(page):
    found = [block for block in blocks.blocks(page.read_text(encoding="utf-8")) if block.is_run]
    if not found:
        return

    @unittest.skipUnless(ENCLOSED, "needs user namespaces (unshare), so that commands see a machine of their own")
    def test(self):
        wanted = [[block.line, block.language, block.text, block.directives.get("before", "")] for block in found]
        result = subprocess.run(
            [*ENCLOSURE, os.environ["ORRERY_PYTHON"], str(HERE / "session.py")],
            input=json.dumps(wanted),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.assertEqual(result.returncode, 0, f"{blocks.title(page, ROOT)}: {result.stdout}")

    name = blocks.title(page, ROOT).removesuffix(".md").replace("/", "_").replace("-", "_").lower()
    setattr(Pages, f"test_{name}", test)


for listed in blocks.pages(ROOT):
    if not ONLY or blocks.title(listed, ROOT) in ONLY:
        add(listed)

if __name__ == "__main__":
    unittest.main()
