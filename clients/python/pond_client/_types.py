"""What the API answers with. Names and meanings are those of docs/openapi.json; tests/test_openapi.py compares."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Mapping, Sequence, TypeVar

SandboxState = Literal["pending", "ready", "stopped", "failed", "deleting", "deleted"]
ExecState = Literal["running", "ended"]

T = TypeVar("T")


def _plain(kind: type[T], value: Mapping[str, Any]) -> T:
    """An object of `kind` from the fields of the same names; those it does not know are left out."""
    return kind(**{field.name: value[field.name] for field in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Port:
    """A port of the host's loopback that leads to one inside."""

    host: int
    sandbox: int


@dataclass(frozen=True)
class Companion:
    """A container beside a sandbox."""

    alias: str
    state: str
    reason: str


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that lasts, as it is now. Times are milliseconds since 1970."""

    id: str
    project: str | None
    state: SandboxState
    reason: str
    profile: str
    backend: str
    labels: Mapping[str, str]
    ports: Sequence[Port]
    companions: Sequence[Companion]
    created_at: int
    changed_at: int
    idle_ttl_seconds: int | None
    cleanup_ttl_seconds: int | None
    sequence: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Sandbox":
        ports = tuple(_plain(Port, port) for port in value["ports"])
        companions = tuple(_plain(Companion, companion) for companion in value["companions"])
        return _plain(cls, {**value, "ports": ports, "companions": companions})

    @property
    def is_moving(self) -> bool:
        """Whether it comes to another state by itself."""
        return self.state in ("pending", "deleting")


@dataclass(frozen=True)
class Exec:
    """A program run in a sandbox."""

    id: int
    command: str
    state: ExecState
    exit_code: int | None
    ended_by: str | None
    started_at: int
    ended_at: int | None
    stdout_bytes: int
    stderr_bytes: int
    truncated: bool

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Exec":
        return _plain(cls, value)


@dataclass(frozen=True)
class Event:
    """Something that happened to a sandbox; numbers begin with 1 and have no gap."""

    sequence: int
    at: int
    event: str
    state: SandboxState
    detail: Any

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Event":
        return _plain(cls, value)


@dataclass(frozen=True)
class Fault:
    """One fault of a document."""

    code: str
    path: str
    message: str
    allowed: Sequence[str]


class Problem(Exception):
    """A call that was not served: a stable code, a status, words, and every fault of a document."""

    def __init__(self, status: int, code: str, detail: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(f"{detail} [{code}]" + "".join(f"\n{f.path}: {f.message} [{f.code}]" for f in faults))
        self.status, self.code, self.detail, self.faults = status, code, detail, tuple(faults)

    @classmethod
    def of(cls, status: int, value: Any) -> "Problem":
        if not isinstance(value, dict) or "code" not in value:
            return cls(status, "unexpected_status", f"the server answered with status {status}")
        faults = [_plain(Fault, fault) for fault in value.get("faults", [])]
        return cls(status, value["code"], value.get("detail", ""), faults)
