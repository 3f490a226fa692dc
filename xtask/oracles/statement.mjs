// Judge the signed statement of a real run with npm @sigstore/verify: the envelope as a bundle with a public key and no
// transparency log. A changed payload and another key must be refused, or the judge would prove nothing.
//
// Arguments: the folder with node_modules, the directory of the run's results, the public key as PEM.

import { generateKeyPairSync, createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { argv, exit } from "node:process";

const [modules, directory, keyFile] = argv.slice(2);
const require = createRequire(join(resolve(modules), "judge.js"));
const { bundleFromJSON } = require("@sigstore/bundle");
const { toSignedEntity, toTrustMaterial, Verifier } = require("@sigstore/verify");

const envelope = JSON.parse(readFileSync(join(directory, "statement.dsse.json"), "utf8"));
const publicKey = createPublicKey(readFileSync(keyFile));

function verify(candidate, key) {
  const bundle = bundleFromJSON({
    mediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
    verificationMaterial: { publicKey: { hint: candidate.signatures[0].keyid }, tlogEntries: [] },
    dsseEnvelope: candidate,
  });
  const nothing = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
  const trust = toTrustMaterial(nothing, () => ({ publicKey: key, validFor: () => true }));
  const thresholds = { ctlogThreshold: 0, tlogThreshold: 0, timestampThreshold: 0 };
  new Verifier(trust, thresholds).verify(toSignedEntity(bundle));
}

function mustRefuse(what, candidate, key) {
  try {
    verify(candidate, key);
  } catch (error) {
    if (error.code === "SIGNATURE_ERROR") return;
    throw error;
  }
  console.error(`@sigstore/verify accepts ${what}`);
  exit(1);
}

verify(envelope, publicKey);
const payload = Buffer.from(envelope.payload, "base64").toString().replace('"exitCode":0', '"exitCode":1');
mustRefuse("a changed payload", { ...envelope, payload: Buffer.from(payload).toString("base64") }, publicKey);
mustRefuse("another key", envelope, generateKeyPairSync("ed25519").publicKey);
console.log("the envelope passes");
