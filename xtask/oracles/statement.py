"""Judge the signed statement of a real run with PyPI securesystemslib, in-toto-attestation, cryptography and jsonschema.

Arguments: the directory of the run's results, and the public key as PEM. The untouched statement must pass everything; a
changed payload, a changed type and another key must not, or the judge would prove nothing.
"""

import base64
import copy
import hashlib
import json
import pathlib
import sys

import jsonschema
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from google.protobuf.json_format import ParseDict
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

SCHEMA = pathlib.Path("docs/schema/run-result.v1.schema.json")


def verify(envelope, key):
    # The library keeps and changes what it is given.
    Envelope.from_dict(copy.deepcopy(envelope)).verify([key], 1)


def must_refuse(what, envelope, key):
    try:
        verify(envelope, key)
    except VerificationError:
        return
    sys.exit(f"securesystemslib accepts {what}")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(directory, key_file):
    envelope = json.loads((directory / "statement.dsse.json").read_text())
    public = load_pem_public_key(key_file.read_bytes())
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    keyid = hashlib.sha256(der).hexdigest()
    assert envelope["signatures"][0]["keyid"] == keyid, "the key id is not the digest of the key"
    key = SSlibKey.from_crypto(public, keyid=keyid)
    verify(envelope, key)

    payload = base64.b64decode(envelope["payload"], validate=True)
    changed = dict(envelope, payload=base64.b64encode(payload.replace(b'"exitCode":0', b'"exitCode":1')).decode())
    assert changed != envelope, "nothing was changed"
    must_refuse("a changed payload", changed, key)
    must_refuse("a changed type", dict(envelope, payloadType="application/json"), key)
    stranger = SSlibKey.from_crypto(Ed25519PrivateKey.generate().public_key(), keyid=keyid)
    must_refuse("another key of the same id", envelope, stranger)

    statement = json.loads(payload)
    Statement.copy_from_pb(ParseDict(statement, statement_pb2.Statement())).validate()
    assert statement["subject"][0]["digest"]["sha256"] == sha256(directory / "manifest.json")
    predicate = statement["predicate"]
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    validator.check_schema(validator.schema)
    validator.validate(predicate)
    assert not validator.is_valid(dict(predicate, surprise=1)), "the schema accepts an unknown field"
    named = {f"{log['stream']}.log": log for log in predicate["logs"]}
    named |= {"policy.json": predicate["policy"], "changes.json": predicate["output"]["changes"]}
    named |= {"changes.patch": predicate["output"]["patch"], "egress.jsonl": predicate["egress"]["record"]}
    for name, stated in named.items():
        assert stated["sha256"] == sha256(directory / name), f"{name} is not what was signed"
    print(f"a statement of key {keyid} about {len(named) + 1} files passes")


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
