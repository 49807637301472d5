"""The code blocks of a Markdown file, and the comments that tell the test how to treat them.

A comment directly before a block, which readers do not see:

    <!-- not run: needs a container engine -->      the block is not run, for this reason
    <!-- run by scripts/dist/test.sh -->            it is run, by this file of the repository
    <!-- from examples/go/main.go -->               it consists of lines of this file, which has a test of its own
    <!-- before: COMMANDS -->                       commands that the page takes as done
"""

import pathlib
import re
from dataclasses import dataclass, field

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$", re.M | re.S
)
DIRECTIVE = re.compile(r"<!--\s*(?P<verb>not run|run by|from|before)[: ]\s*(?P<value>.*?)\s*-->", re.S)

# Languages whose blocks are run. `console` holds prompts, commands and what they print.
RUN = ("sh", "console", "python", "js")
# Languages of programs: these blocks must be run elsewhere.
PROGRAMS = ("java", "go", "csharp", "rust", "xml")
# Data and output.
OTHER = ("text", "json", "toml", "yaml", "ini", "properties", "sql", "diff")

COMMAND = re.compile(
    r"^ {4,}(\$ )?(orrery|curl|pip|pipx|npm|npx|node|python3?|docker|kubectl|helm|make|sudo|java|keytool|export|mvn|go|"
    r"cargo|systemctl|tar|echo|cat) .*$",
    re.M,
)


@dataclass
class Block:
    line: int
    language: str
    text: str
    directives: dict = field(default_factory=dict)

    @property
    def is_run(self):
        return self.language in RUN and not {"not run", "run by", "from"} & self.directives.keys()


def blocks(text):
    """All fenced blocks, in order."""
    found, end = [], 0
    for match in FENCE.finditer(text):
        between = text[end : match.start()]
        end = match.end()
        # Directives stand directly before the block, with blank lines at most in between.
        directives = {}
        rest = between
        while True:
            trailing = re.search(r"<!--(?:(?!-->).)*-->\s*\Z", rest, re.S)
            if not trailing:
                break
            directive = DIRECTIVE.match(trailing.group())
            if directive:
                directives[directive["verb"]] = directive["value"]
            rest = rest[: trailing.start()]
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        found.append(Block(text.count("\n", 0, match.start()) + 1, match["language"].strip(), body, directives))
    return found


def problems(path, root):
    """What is wrong with the blocks of a page before anything runs."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(root)
    for block in blocks(text):
        where = f"{name}:{block.line}"
        if block.language not in RUN + PROGRAMS + OTHER:
            yield f"{where}: unknown language `{block.language}`: use one of {', '.join(RUN + PROGRAMS + OTHER)}"
        if block.language in PROGRAMS and not {"not run", "run by", "from"} & block.directives.keys():
            yield f"{where}: a program needs `from`, `run by` or `not run`"
        if "not run" in block.directives and len(block.directives["not run"]) < 10:
            yield f"{where}: `not run` needs a reason"
        if "run by" in block.directives and not (root / block.directives["run by"]).is_file():
            yield f"{where}: {block.directives['run by']} does not exist"
        if "from" in block.directives:
            yield from missing_lines(block, root / block.directives["from"], where)
    bare = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    for match in COMMAND.finditer(bare):
        line = bare.count("\n", 0, match.start()) + 1
        yield f"{name}:{line}: commands belong into a block of ```sh, where a test finds them: {match.group().strip()}"


def missing_lines(block, file, where):
    if not file.is_file():
        yield f"{where}: {file} does not exist"
        return
    source = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    at = 0
    for line in filter(None, (line.strip() for line in block.text.splitlines())):
        if line not in source[at:]:
            yield f"{where}: not in {file.name}, or in another order: {line}"
            return
        at = source.index(line, at) + 1


def pages(root):
    """Every page with commands: README and the documents."""
    listed = [root / "README.md", *(root / "docs").rglob("*.md")]
    listed += [*(root / "examples").rglob("*.md")]
    return sorted(path for path in listed if "node_modules" not in path.parts)


def title(path, root):
    return str(pathlib.PurePath(path).relative_to(root))
