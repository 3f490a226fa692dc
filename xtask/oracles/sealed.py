"""Judge sealed boxes, key files and bundles with PyPI cryptography, pyhpke and pycryptodome, and make boxes of their own.

Argument: a directory that `tests/oracle/seal.rs make` filled. What pond sealed must open with both libraries, and with
another context or key it must not. What they seal, a Fernet token among it, goes into the directory, for the same program's `open`.
"""

import base64
import json
import pathlib
import struct
import sys

from Crypto.Cipher import ChaCha20_Poly1305
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

CHUNK = 64 * 1024 + 16
SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
OTHER_SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)


def pyhpke_open(enc, ct, key, info):
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return OTHER_SUITE.create_recipient_context(enc, KEMKey.from_pem(pem), info=info).open(ct)


def pyhpke_seal(plain, public, info):
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    enc, sender = OTHER_SUITE.create_sender_context(KEMKey.from_pem(pem), info=info)
    return enc, sender.seal(plain)


def cryptography_open(enc, ct, key, info):
    return SUITE.decrypt(enc + ct, key, info=info)


def cryptography_seal(plain, public, info):
    sealed = SUITE.encrypt(plain, public, info=info)
    return sealed[:32], sealed[32:]


LIBRARIES = {"cryptography": (cryptography_open, cryptography_seal), "pyhpke": (pyhpke_open, pyhpke_seal)}


def must_not_open(what, library, *arguments):
    try:
        LIBRARIES[library][0](*arguments)
    except Exception:
        return
    sys.exit(f"{library} opens a box with {what}")


def bundle(data, key):
    """STREAM over XChaCha20-Poly1305: nonce = prefix, big-endian counter, whether it is the last."""
    header, body = data[:27], data[27:]
    chunks = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)]
    plain = b""
    for counter, chunk in enumerate(chunks):
        nonce = header[8:] + struct.pack(">IB", counter, counter == len(chunks) - 1)
        cipher = ChaCha20_Poly1305.new(key=key, nonce=nonce)
        cipher.update(header)
        plain += cipher.decrypt_and_verify(chunk[:-16], chunk[-16:])
    return plain


def main(directory):
    read = lambda name: (directory / name).read_bytes()
    opening, signing = (load_pem_private_key(read(name), None) for name in ("opening.pem", "signing.pem"))
    assert isinstance(opening, X25519PrivateKey) and isinstance(signing, Ed25519PrivateKey)
    raw = lambda key: key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    assert raw(opening) == read("opening.hex").decode(), "the public half is another one"
    assert raw(signing) == read("signing.hex").decode(), "the public half is another one"

    box, info, secret = json.loads(read("ours.json")), read("info"), read("secret")
    assert box["suite"] == 1
    enc, ct = (base64.b64decode(box[name], validate=True) for name in ("enc", "ct"))
    for library, (open_box, seal_box) in LIBRARIES.items():
        assert open_box(enc, ct, opening, info) == secret, f"{library} reads something else"
        must_not_open("another context", library, enc, ct, opening, info + b"\0")
        must_not_open("another key", library, enc, ct, X25519PrivateKey.generate(), info)
        must_not_open("a changed text", library, enc, ct[:-1] + bytes([ct[-1] ^ 1]), opening, info)
        theirs = dict(zip(("enc", "ct"), seal_box(secret, opening.public_key(), info)))
        theirs = {name: base64.b64encode(value).decode() for name, value in theirs.items()}
        (directory / f"theirs-{library}.json").write_text(json.dumps({"suite": 1, **theirs}))

    assert bundle(read("bundle"), read("bundle.key")) == read("bundle.plain"), "the bundle holds something else"
    try:
        bundle(read("bundle")[: 27 + CHUNK], read("bundle.key"))
        sys.exit("pycryptodome accepts a bundle that was cut")
    except ValueError:
        pass
    fernet_key = Fernet.generate_key()
    (directory / "theirs-fernet.key").write_bytes(fernet_key)
    (directory / "theirs-fernet.token").write_bytes(Fernet(fernet_key).encrypt(secret))
    print(f"{' and '.join(LIBRARIES)} open what pond sealed; pycryptodome reads its bundle")


main(pathlib.Path(sys.argv[1]))
