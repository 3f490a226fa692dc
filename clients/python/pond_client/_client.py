"""The calls. `OPERATIONS` is the table of what is asked for, by the names of docs/openapi.json."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence
from urllib.parse import quote, urlencode, urlsplit

from ._types import Event, Exec, Problem, Sandbox

# operationId: method, path
OPERATIONS: Mapping[str, tuple[str, str]] = {
    "MakeSandbox": ("POST", "/v1/sandboxes"),
    "Sandboxes": ("GET", "/v1/sandboxes"),
    "Sandbox": ("GET", "/v1/sandboxes/{sandbox}"),
    "RemoveSandbox": ("DELETE", "/v1/sandboxes/{sandbox}"),
    "StopSandbox": ("POST", "/v1/sandboxes/{sandbox}/stop"),
    "ResumeSandbox": ("POST", "/v1/sandboxes/{sandbox}/resume"),
    "SandboxEvents": ("GET", "/v1/sandboxes/{sandbox}/events"),
    "Exec": ("POST", "/v1/sandboxes/{sandbox}/execs"),
    "ShowExec": ("GET", "/v1/sandboxes/{sandbox}/execs/{exec}"),
    "ExecOutput": ("GET", "/v1/sandboxes/{sandbox}/execs/{exec}/output"),
    "CancelExec": ("POST", "/v1/sandboxes/{sandbox}/execs/{exec}/cancel"),
    "ReadFile": ("GET", "/v1/sandboxes/{sandbox}/files"),
    "WriteFile": ("PUT", "/v1/sandboxes/{sandbox}/files"),
}

BYTES = "application/octet-stream"


@dataclass(frozen=True)
class Finished:
    """A program that was waited for."""

    exec: Exec
    stdout: bytes
    stderr: bytes

    @property
    def exit_code(self) -> int | None:
        return self.exec.exit_code


class Client:
    """A control plane, with a token of its API. Every call is a connection of its own; a client may be shared by threads."""

    def __init__(self, url: str, token: str, *, timeout: float = 60.0, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a control plane: write http://HOST:PORT or https://HOST:PORT")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError("over plain http anybody on the way reads the token: use https, or a tunnel to 127.0.0.1")
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._token, self._timeout, self._context = token, timeout, context

    # Sandboxes

    def create(
        self, document: Mapping[str, Any] | str, *, project: str | None = None, idempotency_key: str | None = None
    ) -> Sandbox:
        """Asks for a sandbox; it is made afterwards (`wait`). The document is an object, or YAML or JSON text."""
        body: dict[str, Any] = {"document": document}
        if project is not None:
            body["project"] = project
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return Sandbox.of(self._json("MakeSandbox", body=body, headers=headers))

    def get(self, sandbox: str) -> Sandbox:
        return Sandbox.of(self._json("Sandbox", sandbox=sandbox))

    def list(
        self, *, project: str | None = None, state: str | None = None, label: str | None = None, limit: int = 50
    ) -> Iterator[Sandbox]:
        """All of them by id, page by page. `label` is `key` or `key=value`."""
        cursor: str | None = None
        while True:
            query = {"project": project, "state": state, "label": label, "limit": limit, "cursor": cursor}
            page = self._json("Sandboxes", query=query)
            yield from (Sandbox.of(one) for one in page["sandboxes"])
            cursor = page["next"]
            if cursor is None:
                return

    def stop(self, sandbox: str) -> Sandbox:
        return Sandbox.of(self._json("StopSandbox", sandbox=sandbox))

    def resume(self, sandbox: str) -> Sandbox:
        return Sandbox.of(self._json("ResumeSandbox", sandbox=sandbox))

    def delete(self, sandbox: str) -> Sandbox:
        return Sandbox.of(self._json("RemoveSandbox", sandbox=sandbox))

    def wait(self, sandbox: str, *, timeout: float = 60.0) -> Sandbox:
        """The sandbox once it stands still; a `TimeoutError` if that takes too long."""
        deadline = time.monotonic() + timeout
        while (view := self.get(sandbox)).is_moving:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sandbox} is still {view.state}")
            time.sleep(0.05)
        return view

    def events(self, sandbox: str, *, from_sequence: int | None = None, follow: bool = True) -> Iterator[Event]:
        """Events as they happen, after a number, until the sandbox is deleted; without `follow` those there are."""
        last = None if follow else self.get(sandbox).sequence
        if last == 0 or (last is not None and from_sequence is not None and from_sequence >= last):
            return
        answer = self._open("SandboxEvents", sandbox=sandbox, query={"from_sequence": from_sequence}, timeout=None)
        with answer:
            for line in answer:
                if line.startswith(b"data: "):
                    event = Event.of(json.loads(line[len(b"data: ") :]))
                    yield event
                    if last is not None and event.sequence >= last:
                        return

    # Programs

    def exec(
        self,
        sandbox: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_seconds: int | None = None,
    ) -> Exec:
        """Starts a program; no shell reads the command. `run` waits for its end."""
        body: dict[str, Any] = {"command": list(command), "env": dict(env or {})}
        if cwd is not None:
            body["cwd"] = cwd
        if timeout_seconds is not None:
            body["timeout_seconds"] = timeout_seconds
        return Exec.of(self._json("Exec", sandbox=sandbox, body=body))

    def get_exec(self, sandbox: str, exec: int) -> Exec:
        return Exec.of(self._json("ShowExec", sandbox=sandbox, exec=exec))

    def cancel_exec(self, sandbox: str, exec: int) -> Exec:
        return Exec.of(self._json("CancelExec", sandbox=sandbox, exec=exec))

    def output(
        self, sandbox: str, exec: int, *, stream: str = "stdout", offset: int = 0, follow: bool = False
    ) -> Iterator[bytes]:
        """Pieces of a program's output; with `follow` until it ends."""
        query = {"stream": stream, "offset": offset, "follow": "true" if follow else "false"}
        answer = self._open("ExecOutput", sandbox=sandbox, exec=exec, query=query, timeout=None)
        with answer:
            while piece := answer.read1(65536):
                yield piece

    def run(self, sandbox: str, command: Sequence[str], **options: Any) -> Finished:
        """Runs a program to its end."""
        started = self.exec(sandbox, command, **options)
        stdout = b"".join(self.output(sandbox, started.id, follow=True))
        stderr = b"".join(self.output(sandbox, started.id, stream="stderr", follow=True))
        return Finished(self.get_exec(sandbox, started.id), stdout, stderr)

    # Files

    def read_file(self, sandbox: str, path: str) -> bytes:
        with self._open("ReadFile", sandbox=sandbox, query={"path": path}) as answer:
            return answer.read()

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        query = {"path": path}
        with self._open("WriteFile", sandbox=sandbox, query=query, raw=content) as answer:
            answer.read()

    # The wire

    def _json(self, operation: str, *, body: Any = None, **parts: Any) -> Any:
        raw = None if body is None else json.dumps(body).encode()
        with self._open(operation, raw=raw, media="application/json", **parts) as answer:
            return json.loads(answer.read())

    def _open(
        self,
        operation: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        media: str = BYTES,
        timeout: float | None = -1.0,
        **places: Any,
    ) -> http.client.HTTPResponse:
        method, path = OPERATIONS[operation]
        target = path.format(**{name: quote(str(place), safe="") for name, place in places.items()})
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        if asked:
            target += "?" + urlencode(asked)
        sent = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        if raw is not None:
            sent["Content-Type"] = media
        connection = self._connection(self._timeout if timeout == -1.0 else timeout)
        try:
            connection.request(method, target, body=raw, headers=sent)
            answer = connection.getresponse()
            if 200 <= answer.status < 300:
                return answer
            text = answer.read(1 << 20)
        except BaseException:
            connection.close()
            raise
        connection.close()
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        raise Problem.of(answer.status, value)

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        if self._secure:
            context = self._context or ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
