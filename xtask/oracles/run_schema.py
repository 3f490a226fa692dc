"""Judge docs/schema/run.schema.json with the PyPI jsonschema package.

The schema itself must be valid, every example must satisfy it, and no example
may still satisfy it once an unknown field is added at any level: a schema that
accepts everything would otherwise pass.
"""

import copy
import json
import pathlib
import sys

import jsonschema
import yaml

SCHEMA = pathlib.Path("docs/schema/run.schema.json")
EXAMPLES = pathlib.Path("docs/examples")
STRANGER = "no_such_field"


def objects(value):
    """Every object of a document that the contract itself defines."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


def faults(validator, name, document):
    for error in validator.iter_errors(document):
        yield f"{name}: {error.json_path}: {error.message}"
    for index in range(sum(1 for _ in objects(document))):
        altered = copy.deepcopy(document)
        list(objects(altered))[index][STRANGER] = True
        if validator.is_valid(altered):
            yield f"{name}: the schema accepts an unknown field in object {index}"


def main():
    schema = json.loads(SCHEMA.read_text())
    checker = jsonschema.validators.validator_for(schema, default=None)
    if checker is None:
        sys.exit(f"{SCHEMA}: $schema names no known draft")
    checker.check_schema(schema)
    validator = checker(schema)
    paths = sorted(path for path in EXAMPLES.glob("*") if path.suffix in {".json", ".yaml", ".yml"})
    if not paths:
        sys.exit(f"{EXAMPLES}: no example to check")
    # YAML is read for JSON too: every JSON document is YAML.
    found = [fault for path in paths for fault in faults(validator, path.name, yaml.safe_load(path.read_text()))]
    if found:
        sys.exit("\n".join(found))
    print(f"{len(paths)} examples satisfy {SCHEMA}")


main()
