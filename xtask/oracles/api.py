"""Has Schemathesis, which is not ours, try everything docs/openapi.json describes, and more, against a real `pond serve`.

A 500, a status, media type, header or body that the document does not have, a call that works without its token: each is a
failure. Not asked is whether everything that fits the schema is accepted: no schema knows which projects exist.

Usage: api.py DIRECTORY COMMAND... (COMMAND is pond, DIRECTORY is empty and ours)
"""

import json
import os
import pathlib
import subprocess
import sys
import urllib.request

SEED = "20261116"
SECONDS = "60"


def main(directory, pond):
    directory = pathlib.Path(directory)
    (directory / "pond.toml").touch()
    environment = dict(os.environ, POND_STATE_DIR=str(directory / "state"), POND_CONFIG=str(directory / "pond.toml"))
    with open(directory / "serve.log", "wb") as log:
        serving = subprocess.Popen(
            [*pond, "serve", "--json", "--listen", "127.0.0.1:0"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
        )
        try:
            said = json.loads(serving.stdout.readline())
            return fuzz(directory, said["listening"], said["admin_token"])
        finally:
            serving.terminate()
            serving.wait(timeout=60)


def ask(url, bearer, method, path, body=None):
    headers = {"Authorization": bearer, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, method=method, headers=headers, data=data)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def fuzz(directory, url, token):
    bearer = f"Bearer {token}"
    ask(url, bearer, "PUT", "/v1/projects/acme")
    executor = {"kind": "swarm", "command": ["true"], "sandbox": {"profile": "untrusted-code-write"}}
    document = {"project": "acme", "stages": [{"name": "one", "executor": executor}]}
    run = ask(url, bearer, "POST", "/v1/runs", {"document": document})["run"]
    # A run that is over ends the streams of those who follow it.
    ask(url, bearer, "POST", f"/v1/runs/{run}/cancel", {})
    # The token to revoke; else the fuzzer finds its own in the list, and is a stranger from then on.
    other = ask(url, bearer, "POST", "/v1/tokens", {"scopes": ["runs:read"]})["id"]
    known = {"run": run, "stage": "one", "project": "acme", "token": other}
    config = directory / "schemathesis.toml"
    config.write_text("[parameters]\n" + "".join(f'"path.{name}" = "{value}"\n' for name, value in known.items()))
    tool = pathlib.Path(sys.executable).with_name("schemathesis")
    everything = [
        tool, "--config-file", config, "run", f"{url}/openapi.json", "-H", f"Authorization: {bearer}", "--seed", SEED,
        "--continue-on-failure", "--request-timeout", "30", "--suppress-health-check", "all", "--no-color",
    ]
    passes = [
        # The API counts calls too, and those of strangers most of all: they have a pass of their own, below its rate.
        ["--exclude-checks", "positive_data_acceptance,ignored_auth,missing_required_header", "--max-time", SECONDS, "--max-examples", "40",
         "--phases", "examples,coverage,fuzzing", "--rate-limit", "90/s"],
        ["--checks", "ignored_auth", "--max-examples", "2", "--phases", "fuzzing", "--rate-limit", "5/s"],
    ]
    codes = [subprocess.run([*everything, *one], cwd=directory, stdin=subprocess.DEVNULL, check=False).returncode
             for one in passes]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
