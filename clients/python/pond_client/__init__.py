"""Sandboxes of a pond control plane: a thin, typed client of its HTTP API, with the standard library alone.

Everything an answer may hold is a field of a dataclass below; an answer with fields that are not known here is still read (a newer
server may say more), one that lacks a field is an error.
"""

from ._client import Client, Finished
from ._types import Companion, Event, Exec, Fault, Port, Problem, Sandbox

__all__ = ["Client", "Companion", "Event", "Exec", "Fault", "Finished", "Port", "Problem", "Sandbox"]
