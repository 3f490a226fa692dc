"""The client is what docs/openapi.json says: every operation on sandboxes is covered, and every field exists, with the same need."""

import dataclasses
import inspect
import json
import pathlib
import unittest

from pond_client import Companion, Event, Exec, Fault, Port, Sandbox, _client

DOCUMENT = json.loads((pathlib.Path(__file__).parents[3] / "docs/openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
VIEWS = {
    Port: "PortView",
    Companion: "CompanionView",
    Sandbox: "SandboxView",
    Exec: "ExecView",
    Event: "SandboxEvent",
    Fault: "Fault",
}


def operations():
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/v1/sandboxes"):
                yield operation["operationId"], (method.upper(), path), operation


class OpenApi(unittest.TestCase):
    def test_every_operation_on_sandboxes_is_covered_and_no_other(self):
        self.assertEqual({name: place for name, place, _ in operations()}, dict(_client.OPERATIONS))

    def test_every_operation_is_used(self):
        source = inspect.getsource(_client.Client)
        for name in _client.OPERATIONS:
            self.assertIn(f'"{name}"', source)

    def test_what_is_read_is_what_is_answered(self):
        for kind, name in VIEWS.items():
            self.assertEqual([field.name for field in dataclasses.fields(kind)], list(in_order(kind, name)), name)

    def test_states_are_the_ones_there_are(self):
        for union, name in [("SandboxState", "SandboxState"), ("ExecState", "ExecState")]:
            known = inspect.getmodule(Sandbox).__dict__[union].__args__
            self.assertEqual(set(known), values(SCHEMAS[name]))

    def test_what_is_sent_is_taken(self):
        self.assertEqual(set(SCHEMAS["NewExec"]["properties"]), {"command", "env", "cwd", "timeout_seconds"})
        self.assertEqual(set(SCHEMAS["NewSandbox"]["properties"]), {"document", "project"})
        queries = {name: {p["name"] for p in op["parameters"] if p["in"] == "query"} for name, _, op in operations()}
        self.assertEqual(queries["Sandboxes"], {"project", "state", "label", "cursor", "limit"})
        self.assertEqual(queries["ExecOutput"], {"stream", "offset", "follow"})
        self.assertEqual(queries["SandboxEvents"], {"from_sequence"})
        self.assertEqual((queries["ReadFile"], queries["WriteFile"]), ({"path"}, {"path"}))


def in_order(kind, name):
    """The schema's properties in the client's order; one that is missing or new shows as a difference."""
    properties = set(SCHEMAS[name]["properties"])
    known = [field.name for field in dataclasses.fields(kind) if field.name in properties]
    return known + sorted(properties - set(known))


def values(schema):
    """The strings a schema allows, however it is written."""
    found = set(schema.get("enum", []))
    found |= {schema["const"]} if "const" in schema else set()
    for part in schema.get("oneOf", []):
        found |= values(part)
    return found


if __name__ == "__main__":
    unittest.main()
