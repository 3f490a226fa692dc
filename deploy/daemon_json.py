#!/usr/bin/python3
"""Registers runtimes with a Docker engine: reads and changes daemon.json, and asks the engine what it took.

    daemon_json.py look FILE NAME ENTRY     prints absent, same or different
    daemon_json.py put FILE NAME ENTRY      puts the entry there; prints the backup's name, or nothing without an old file
    daemon_json.py restore FILE [BACKUP]    undoes a put
    daemon_json.py registered SOCKET NAME ENTRY   whether the engine has the runtime so: prints no, yes or different
    daemon_json.py give SOCKET PROGRAM      gives the engine an image of that one program, as /program; prints its id
    daemon_json.py take SOCKET IMAGE        takes it back

A file that is not understood whole is never written: a duplicate key would lose one of its values, so it is refused too.
The new file is complete before it gets the old one's name, and has its owner and mode.
"""

import fcntl
import http.client
import io
import json
import math
import os
import shutil
import socket
import sys
import tarfile
import tempfile
import time

PATIENCE_SECONDS = 10


class Refused(Exception):
    """A sentence for the person at the terminal."""


def unique(pairs):
    seen = {}
    for key, value in pairs:
        if key in seen:
            raise Refused(f'the key "{key}" is there twice; the engine would use one of them and a rewrite would lose the other')
        seen[key] = value
    return seen


def no_constant(name):
    raise Refused(f"{name} is not JSON")


def finite(text):
    number = float(text)
    if math.isinf(number):
        raise Refused(f"the number {text} is too large to be written back")
    return number


def read(path):
    """The settings, or none where there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    try:
        settings = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant, parse_float=finite)
    except json.JSONDecodeError as fault:
        raise Refused(f"line {fault.lineno}, column {fault.colno}: {fault.msg}") from fault
    if not isinstance(settings, dict):
        raise Refused("the file is not an object")
    if not isinstance(settings.get("runtimes", {}), dict):
        raise Refused('"runtimes" is not an object')
    return settings


def look(path, name, entry):
    there = read(path).get("runtimes", {})
    if name not in there:
        return "absent"
    return "same" if there[name] == entry else "different"


def put(path, name, entry):
    path = os.path.realpath(path)
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    settings = read(path)
    settings.setdefault("runtimes", {})[name] = entry
    backup = keep(path)
    replace(path, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    os.fsync(held)
    return backup


def keep(path):
    """A copy beside the file, under a name that nothing has."""
    if not os.path.exists(path):
        return ""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    handle, backup = tempfile.mkstemp(prefix=f"{os.path.basename(path)}.{stamp}.", dir=os.path.dirname(path))
    os.close(handle)
    shutil.copy2(path, backup)
    like(path, backup)
    return backup


def like(path, other):
    status = os.stat(path)
    os.chown(other, status.st_uid, status.st_gid)
    os.chmod(other, status.st_mode & 0o7777)


def replace(path, text):
    handle, fresh = tempfile.mkstemp(prefix=".daemon.json.", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            like(path, fresh)
        else:
            os.chmod(fresh, 0o644)
        os.rename(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def restore(path, backup=""):
    path = os.path.realpath(path)
    if backup:
        os.rename(backup, path)
    else:
        os.unlink(path)


class Engine(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("engine", timeout=PATIENCE_SECONDS)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(path, method, target, body=None):
    """The last line of an engine's answer: one that takes its time says several."""
    engine = Engine(path)
    try:
        engine.request(method, target, body, {"Content-Type": "application/x-tar"} if body else {})
        answer = engine.getresponse()
        said = json.loads(answer.read().decode().splitlines()[-1])
    except (OSError, http.client.HTTPException, ValueError, IndexError) as fault:
        raise Refused(f"no container engine answers at {path}: {fault}") from fault
    if answer.status >= 300:
        raise Refused(said.get("message", answer.reason))
    return said


def registered(path, name, entry):
    """Whether the engine has the runtime as the entry says."""
    there = ask(path, "GET", "/info").get("Runtimes", {}).get(name)
    return "no" if there is None else "yes" if all(there.get(key) == entry[key] for key in entry) else "different"


def give(path, program):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        tar.add(os.path.realpath(program), "program")
    return ask(path, "POST", "/images/create?fromSrc=-", archive.getvalue())["status"]


def take(path, image):
    ask(path, "DELETE", f"/images/{image}")
    return ""


ACTS = {"look": look, "put": put, "registered": registered}
IMAGES = {"give": give, "take": take}


def main(words):
    try:
        if words[0] == "restore":
            restore(*words[1:])
        elif words[0] in IMAGES:
            print(IMAGES[words[0]](*words[1:]))
        else:
            path, name, entry = words[1:]
            print(ACTS[words[0]](path, name, json.loads(entry)))
    except (Refused, OSError, UnicodeDecodeError) as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
