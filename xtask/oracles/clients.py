"""Has two clients use the sandboxes of a real `pond up`: pond_client, installed from this repository, and the MCP client of PyPI, which is
not ours, on standard input and output and over HTTP.

Usage: clients.py DIRECTORY COMMAND... (COMMAND is pond, DIRECTORY is empty and ours)
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

import httpx2
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from pond_client import Client, Problem

PROFILE = "untrusted-code-internet"
TOOLS = {"create", "exec", "read_file", "write_file", "list", "delete"}


def main(directory, pond):
    directory = pathlib.Path(directory)
    (directory / "pond.toml").touch()
    environment = dict(os.environ, POND_STATE_DIR=str(directory / "state"), POND_CONFIG=str(directory / "pond.toml"))
    with open(directory / "up.log", "wb") as log:
        up = subprocess.Popen(
            [*pond, "up", "--json", "--listen", "127.0.0.1:0"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
        )
        try:
            said = json.loads(up.stdout.readline())
            url, admin = said["listening"], said["admin_token"]
            tokens = prepare(url, admin)
            python_client(url, tokens)
            environment.update(POND_URL=url, POND_TOKEN=tokens["acme"])
            asyncio.run(over_stdio(pond, environment))
            over_http(pond, environment, tokens, log)
            left = [box.id for box in Client(url, admin).list() if box.state != "deleted"]
            assert left == [], f"left behind: {left}"
        finally:
            up.terminate()
            up.wait(timeout=120)


def ask(url, token, method, path, body=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, method=method, headers=headers, data=data)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def prepare(url, admin):
    """Two projects, a token of each, and one that may only look."""
    scopes = ["sandboxes:read", "sandboxes:write"]
    tokens = {}
    for project in ["acme", "other"]:
        ask(url, admin, "PUT", f"/v1/projects/{project}")
        tokens[project] = ask(url, admin, "POST", "/v1/tokens", {"scopes": scopes, "project": project})["token"]
    tokens["reader"] = ask(url, admin, "POST", "/v1/tokens", {"scopes": scopes[:1], "project": "acme"})["token"]
    return tokens


def refused(code, act):
    try:
        act()
    except Problem as problem:
        assert problem.code == code, problem
        return problem
    raise AssertionError(f"{code} was expected")


def python_client(url, tokens):
    pond, stranger = Client(url, tokens["acme"]), Client(url, tokens["other"])
    document = {"id": "one", "labels": {"team": "web"}, "sandbox": {"profile": PROFILE}, "env": {"GREETING": "hello"}}
    made = pond.create(document, idempotency_key="k")
    assert pond.create(document, idempotency_key="k").id == made.id == "one"
    assert pond.wait("one").state == "ready", pond.get("one")
    done = pond.run("one", ["sh", "-c", "echo $GREETING; echo oops >&2; exit 3"])
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"hello\n", b"oops\n"), done
    content = bytes(range(256)) * 100
    pond.write_file("one", "/workspace/a", content)
    assert pond.read_file("one", "/workspace/a") == content
    assert pond.run("one", ["wc", "-c", "/workspace/a"]).stdout.startswith(b"25600")
    started = pond.exec("one", ["sleep", "600"])
    pond.cancel_exec("one", started.id)
    assert b"".join(pond.output("one", started.id, follow=True)) == b""
    assert pond.get_exec("one", started.id).ended_by == "cancelled", pond.get_exec("one", started.id)
    late = pond.run("one", ["sleep", "600"], timeout_seconds=1)
    assert late.exec.ended_by == "timed_out", late
    refused("not_found", lambda: stranger.get("one"))
    refused("not_found", lambda: stranger.run("one", ["true"]))
    assert list(stranger.list()) == [] and [box.id for box in pond.list(label="team=web", limit=1)] == ["one"]
    refused("scope_missing", lambda: Client(url, tokens["reader"]).stop("one"))
    refused("not_found", lambda: pond.read_file("one", "/workspace/nothing"))
    problem = refused("document_refused", lambda: pond.create({"network": "host", "sandbox": {"profile": "none"}}))
    assert {fault.code for fault in problem.faults} == {"unknown_field", "unconfined_refused"}, problem
    reaching = {"sandbox": {"profile": PROFILE}, "mounts": [{"source": "/etc", "target": "/data"}]}
    assert refused("document_refused", lambda: pond.create(reaching)).faults[0].code == "not_over_api"
    pond.stop("one")
    wait_for(pond, "one", "stopped")
    refused("conflict", lambda: pond.run("one", ["true"]))
    pond.resume("one")
    wait_for(pond, "one", "ready")
    assert pond.read_file("one", "/workspace/a") == content, "its disk was kept"
    pond.delete("one")
    numbers = [event.sequence for event in pond.events("one")]
    assert numbers == list(range(1, len(numbers) + 1)), numbers
    later = [event.sequence for event in pond.events("one", from_sequence=2)]
    assert later == numbers[2:], later
    assert pond.get("one").state == "deleted"
    refused("id_taken", lambda: pond.create(document))


def wait_for(pond, box, state):
    for event in pond.events(box):
        if event.state == state and event.sequence == pond.get(box).sequence:
            return
        if pond.get(box).state == state:
            return


async def use(client):
    """What an agent does with the tools."""

    async def call(name, **arguments):
        result = await client.call_tool(name, arguments)
        assert not result.is_error, (name, result.content)
        return result.structured_content

    tools = {tool.name for tool in (await client.list_tools()).tools}
    assert tools == TOOLS, tools
    box = (await call("create", profile=PROFILE))["id"]
    done = await call("exec", sandbox=box, command=["sh", "-c", "echo out; echo err >&2; exit 4"])
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (4, "out\n", "err\n"), done
    await call("write_file", sandbox=box, path="/workspace/a/b", text="grüße\n")
    assert await call("read_file", sandbox=box, path="/workspace/a/b") == {"text": "grüße\n"}
    await call("write_file", sandbox=box, path="/workspace/raw", base64="AP8=")
    assert await call("read_file", sandbox=box, path="/workspace/raw") == {"base64": "AP8="}
    assert box in {one["id"] for one in (await call("list"))["sandboxes"]}
    late = await call("exec", sandbox=box, command=["sleep", "600"], timeout_seconds=1)
    assert late["ended_by"] == "timed_out", late
    for name, arguments, word in [
        ("exec", {"sandbox": "no-such-box", "command": ["true"]}, "not_found"),
        ("exec", {"sandbox": box, "command": []}, "command_missing"),
        ("create", {"document": {"network": "host", "sandbox": {"profile": "none"}}}, "unknown_field"),
        ("read_file", {"sandbox": box, "path": "../etc/passwd"}, "parameter_invalid"),
        ("exec", {"sandbox": box, "command": ["true"], "privileged": True}, "unknown field"),
    ]:
        result = await client.call_tool(name, arguments)
        assert result.is_error and word in result.content[0].text, (name, arguments, result.content)
    assert (await call("delete", sandbox=box))["state"] == "deleted"


async def over_stdio(pond, environment):
    server = StdioServerParameters(command=pond[0], args=[*pond[1:], "mcp"], env=environment)
    async with McpClient(server) as client:
        await use(client)


def over_http(pond, environment, tokens, log):
    environment = {name: value for name, value in environment.items() if name != "POND_TOKEN"}
    serving = subprocess.Popen(
        [*pond, "mcp", "--http", "127.0.0.1:0"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
    )
    try:
        url = serving.stdout.readline().decode().strip()
        asyncio.run(with_token(url, tokens["acme"]))
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        good = {"Content-Type": "application/json", "Authorization": f"Bearer {tokens['acme']}"}
        for status, headers in [
            (200, good),
            (401, {"Content-Type": "application/json"}),
            (401, {**good, "Authorization": "Bearer nonsense"}),
            (403, {**good, "Origin": "https://evil.example"}),
            (403, {**good, "Host": "evil.example"}),
        ]:
            request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
            try:
                found = urllib.request.urlopen(request, timeout=60).status
            except urllib.error.HTTPError as error:
                found = error.code
            assert found == status, (found, status, headers.keys())
    finally:
        serving.terminate()
        serving.wait(timeout=60)
    elsewhere = subprocess.run([*pond, "mcp", "--http", "0.0.0.0:0"], env=environment, capture_output=True, check=False)
    assert elsewhere.returncode == 125 and b"127.0.0.1" in elsewhere.stderr, elsewhere


async def with_token(url, token):
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120) as http:
        async with McpClient(streamable_http_client(url, http_client=http)) as client:
            await use(client)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
