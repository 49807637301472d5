"""A reader at a terminal: one shell for a page, and one more for every server that it starts.

A server in the foreground runs in a terminal of its own until another one takes its port, as a reader would do it.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

READY = "is ready after"
# Not what commands may take, but when to give up on one that hangs.
PATIENCE_SECONDS = 240
PROMPT = re.compile(r"^(\$ |[\w./-]*orrery> |[\w-]+(?:\.[\w-]+)?> )")


class Failed(Exception):
    pass


class Session:
    def __init__(self, directory, environment):
        self.directory = directory
        self.environment = environment
        self.servers = {}
        self.count = 0
        self.shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def close(self):
        for key in list(self.servers):
            self.stop(key)
        self.shell.stdin.close()
        self.shell.wait(timeout=PATIENCE_SECONDS)

    def run(self, text):
        """Runs lines of shell and returns what they print; the first failing command ends it."""
        self.count += 1
        mark = f"--end-of-block-{self.count}--"
        script = tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False)
        script.write("set -eE\ntrap 'echo \"failed: $BASH_COMMAND\"' ERR\n" + text + "\nset +e; trap - ERR\n")
        script.close()
        self.shell.stdin.write(f". {script.name} </dev/null; echo; echo '{mark}'\n")
        self.shell.stdin.flush()
        timer = threading.Timer(PATIENCE_SECONDS, self.shell.kill)
        timer.start()
        lines = []
        try:
            for line in self.shell.stdout:
                if line.rstrip("\n") == mark:
                    break
                lines.append(line)
            else:
                raise Failed("".join(lines)[-3000:] or "the command did not end")
        finally:
            timer.cancel()
            os.unlink(script.name)
        return "".join(lines)[:-1]

    def block(self, text):
        """Runs a block of `sh`, in which every server in the foreground gets a terminal."""
        printed = ""
        for is_server, part in parts(text):
            printed += self.serve(part) if is_server else self.run(part)
        return printed

    def serve(self, command):
        key = port(command)
        self.stop(key)
        self.count += 1
        log = os.path.join(self.environment["ORRERY_TEST_LOGS"], f"server-{self.count}.log")
        errors = log + ".err"
        self.run(f"{{ exec {command.strip()}\n}} >{log} 2>{errors} </dev/null &\nserver_pid=$!")
        pid = int(self.run("echo $server_pid").split()[-1])
        wait_for(lambda: READY in read(log) or '"ready' in read(log) or '"endpoint"' in read(log) or not alive(pid))
        if not alive(pid):
            raise Failed(f"{command}\n{read(log)}{read(errors)}")
        self.servers[key] = pid
        return read(log)

    def stop(self, key):
        pid = self.servers.pop(key, None)
        if pid is not None and alive(pid):
            os.kill(pid, signal.SIGINT)
            wait_for(lambda: not alive(pid))

    def console(self, text):
        """Runs the commands of a block of `console`, and compares what they print."""
        for command, inputs, expected in exchanges(text):
            if inputs:
                # On a terminal, so that the program prints what it prints for people.
                typed = " ".join(shlex.quote(line) for line in inputs)
                printed = self.run(
                    f"printf '%s\\n' {typed} | TERM=dumb script --quiet --return --command {shlex.quote(command)} /dev/null"
                )
                printed = "\n".join(PROMPT.sub("", line) for line in printed.replace("\r", "").split("\n"))
            else:
                printed = self.block(command)
            compare(command, expected, printed)

    def program(self, language, text):
        suffix, runner = {"python": (".py", "python3"), "js": (".mjs", "node")}[language]
        path = os.path.join(self.directory, f"block-{self.count}{suffix}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        self.run(f"{runner} {path}")


def parts(text):
    """The block, cut before and after each server in the foreground."""
    found = []
    for line in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n?", text):
        is_server = bool(re.match(r"orrery serve\b", line) and not re.search(r"&\s*$|--help", line))
        if found and not is_server and not found[-1][0]:
            found[-1] = (False, found[-1][1] + line)
        elif line.strip():
            found.append((is_server, line))
    return found


def port(command):
    listen = re.search(r"--listen[ =]\S*?(\d+)(?:\s|\\|$)", command)
    return listen[1] if listen else "8081"


def exchanges(text):
    """Commands after `$ `, lines typed into the program that they start, and the output."""
    found = []
    for line in text.splitlines():
        prompt = PROMPT.match(line)
        if prompt and prompt[1] == "$ ":
            found.append((line[2:], [], []))
        elif prompt and found:
            found[-1][1].append(line[len(prompt[1]) :])
        elif found and found[-1][0].endswith("\\") and not found[-1][2]:
            found[-1] = (found[-1][0] + "\n" + line, found[-1][1], found[-1][2])
        elif found:
            found[-1][2].append(line)
    return found


def compare(command, expected, printed):
    """Every expected line must come, in this order; `…` stands for any text."""
    lines = [line.strip() for line in printed.splitlines()]
    at = 0
    for line in filter(None, (line.strip() for line in expected)):
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")) + r"\Z")
        while at < len(lines) and not pattern.match(lines[at]):
            at += 1
        if at == len(lines):
            raise Failed(f"{command}\nexpected the line `{line}`, but it printed\n{printed}")
        at += 1


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise Failed("waited too long")
        time.sleep(0.05)


def main():
    """Runs the blocks of one page: a JSON list of [line, language, text, before] on standard input."""
    import json

    directory = tempfile.mkdtemp(prefix="reader-")
    logs = tempfile.mkdtemp(prefix="logs-")
    environment = dict(os.environ, HOME=directory, ORRERY_TEST_LOGS=logs, NO_COLOR="1", COLUMNS="200")
    # Where `npm install` would put them.
    os.symlink(os.environ["NODE_PATH"], os.path.join(directory, "node_modules"))
    session = Session(directory, environment)
    for line, language, text, before in json.load(sys.stdin):
        try:
            if before:
                session.block(before)
            if language == "sh":
                session.block(text)
            elif language == "console":
                session.console(text)
            else:
                session.program(language, text)
        except Failed as failure:
            servers = "".join(read(os.path.join(logs, name)) for name in sorted(os.listdir(logs)))
            print(f"the block in line {line} failed:\n{text}\n{failure}\nServers:\n{servers[-1500:]}")
            sys.exit(1)
    session.close()


if __name__ == "__main__":
    main()
