#!/usr/bin/python3
"""Stands for an agent command line: started as claude, codex, gemini, opencode or aider, it finds the broker and its key
where pond put them for that agent, sends requests of the shape that the real one was seen to send (docs/agents.md has the
versions), writes the file the model asks for, and tells what happened as one JSON object."""

import http.client, json, os, pathlib, re, sys, tomllib, urllib.parse

NAME = pathlib.Path(sys.argv[0]).name
HOME = pathlib.Path.home()
ENV = os.environ
TASK = sys.argv[-1]
# In two parts, so that this file is not what is found.
REAL_KEY = b"sk-ant" + b"-real-0123456789"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "tools": {"type": "array"}}}


def send(base, path, headers, body, method="POST"):
    url = urllib.parse.urlsplit(base)
    link = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    text = None if body is None else json.dumps(body)
    link.request(method, url.path + path, text, {"Content-Type": "application/json", **headers} if text else headers)
    reply = link.getresponse()
    return reply.status, reply.read().decode()


def events(text):
    data = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(item) for item in data if item != "[DONE]"]


class Claude:
    base = ENV.get("ANTHROPIC_BASE_URL")
    headers = {
        "Authorization": f"Bearer {ENV.get('ANTHROPIC_AUTH_TOKEN')}", "anthropic-version": "2023-06-01", "x-app": "cli",
        "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
        "anthropic-dangerous-direct-browser-access": "true", "X-Claude-Code-Session-Id": "s-1",
        "X-Stainless-Retry-Count": "0", "User-Agent": "claude-cli/2.1.197 (external, sdk-cli)",
    }
    path = "/v1/messages?beta=true"
    aside = [("POST", "/v1/messages/count_tokens?beta=true"), ("POST", "/api/event_logging/batch"), ("GET", "/api/hello")]
    host = "statsig.anthropic.com"

    def __init__(self):
        self.body = {
            "model": ENV["ANTHROPIC_MODEL"], "messages": [{"role": "user", "content": [{"type": "text", "text": TASK}]}],
            "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "Write", "description": "Writes a file.", "input_schema": SCHEMA}],
            "metadata": {"user_id": "{}"}, "max_tokens": 32000, "thinking": {"budget_tokens": 31999, "type": "enabled"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "stream": True,
        }

    def read(self, events):
        said = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        parts = [event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"]
        calls = [event["content_block"] for event in events if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use"]
        files = []
        for call in calls:
            call["input"] = json.loads("".join(parts))
            files.append((call["input"]["file_path"], call["input"]["content"]))
            self.body["messages"] += [
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "written"}]},
            ]
        return said, files


class Codex:
    path, host = "/responses", "chatgpt.com"
    aside = [("GET", "/models?client_version=0.166.0"), ("POST", "/responses/compact"), ("POST", "/memories/trace_summarize")]

    def __init__(self):
        settings = tomllib.loads((HOME / ".codex/config.toml").read_text())
        provider = settings["model_providers"][settings["model_provider"]]
        assert (settings["sandbox_mode"], settings["approval_policy"]) == ("danger-full-access", "never")
        self.base = provider["base_url"]
        self.headers = {
            "Authorization": f"Bearer {ENV[provider['env_key']]}", "Accept": "text/event-stream", "originator": "codex_exec",
            "session_id": "s-1", "x-codex-turn-metadata": "{}", "User-Agent": "codex_exec/0.166.0 (Debian 12.0.0; x86_64)",
        }
        group = {"type": "namespace", "name": "functions", "description": "", "tools": [
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
            {"type": "function", "name": "wait", "strict": False, "parameters": SCHEMA},
        ]}
        self.body = {
            "model": settings["model"], "stream": True, "tool_choice": "auto", "parallel_tool_calls": False, "store": False,
            "reasoning": {"effort": "low", "context": "all_turns"}, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k", "text": {"verbosity": "low"}, "client_metadata": {"x-codex-window-id": "w:0"},
            "input": [
                {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [group]},
                {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": TASK}]},
            ],
        }

    def read(self, events):
        said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        files = []
        for item in items:
            if item["type"] == "custom_tool_call":
                path, text = re.search(r"\*\*\* Add File: (.*)\n\+(.*\n)", item["input"]).groups()
                files.append((path, text))
                self.body["input"] += [item, {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "done"}]
        return said, files


class Gemini:
    base, host = ENV.get("GOOGLE_GEMINI_BASE_URL"), "play.googleapis.com"
    headers = {
        "x-goog-api-key": ENV.get("GEMINI_API_KEY"), "x-goog-api-client": "google-genai-sdk/1.30.0 gl-node/v20",
        "User-Agent": "GeminiCLI-tui/0.61.0/gemini-2.5-pro (linux; x64; terminal)",
    }

    def __init__(self):
        settings = json.loads((HOME / ".gemini/settings.json").read_text())
        assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
        policy = tomllib.loads((HOME / ".gemini/policies/pond.toml").read_text())
        assert [rule["decision"] for rule in policy["rule"]] == ["deny", "allow"]
        model = f"/v1beta/models/{ENV['GEMINI_MODEL']}"
        self.path = f"{model}:streamGenerateContent?alt=sse"
        self.aside = [("POST", f"{model}:countTokens"), ("POST", f"{model}:batchGenerateContent")]
        self.body = {
            "contents": [{"role": "user", "parts": [{"text": TASK}]}],
            "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
            "tools": [{"functionDeclarations": [{"name": "write_file", "parametersJsonSchema": SCHEMA}]}],
            "generationConfig": {"temperature": 1, "topP": 0.95, "topK": 64, "thinkingConfig": {"includeThoughts": True}},
        }

    def read(self, events):
        parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
        files = []
        for call in [part["functionCall"] for part in parts if "functionCall" in part]:
            files.append((call["args"]["file_path"], call["args"]["content"]))
            self.body["contents"] += [
                {"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "c2tpcA=="}]},
                {"role": "user", "parts": [{"functionResponse": {"name": call["name"], "response": {"output": "written"}}}]},
            ]
        return "".join(part.get("text", "") for part in parts), files


class Opencode:
    path, host, aside = "/chat/completions", "models.dev", [("GET", "/models"), ("POST", "/embeddings")]

    def __init__(self):
        settings = json.loads((HOME / ".config/opencode/opencode.json").read_text())
        provider, _, model = settings["model"].partition("/")
        options = settings["provider"][provider]["options"]
        self.base = options["baseURL"]
        self.headers = {"Authorization": f"Bearer {options['apiKey']}", "User-Agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.46"}
        self.body = {
            "model": model, "max_tokens": 16384, "messages": [{"role": "user", "content": TASK}], "stream": True,
            "tools": [{"type": "function", "function": {"name": "write", "parameters": SCHEMA}}], "tool_choice": "auto",
            "stream_options": {"include_usage": True},
        }

    def read(self, events):
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls") or []]
        files = []
        if calls:
            arguments = "".join(call["function"]["arguments"] for call in calls)
            files = [(json.loads(arguments)["filePath"], json.loads(arguments)["content"])]
            call = {"id": calls[0]["id"], "type": "function", "function": {"name": "write", "arguments": arguments}}
            self.body["messages"] += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": "written"},
            ]
        return "".join(delta.get("content") or "" for delta in deltas), files


class Aider:
    """LiteLLM's spelling of Gemini's API; edits are blocks in the text, and there are no tools."""

    base, host, aside = ENV.get("GEMINI_API_BASE"), "us.i.posthog.com", []
    headers = {"x-goog-api-key": ENV.get("GEMINI_API_KEY"), "User-Agent": "litellm/1.81.10"}

    def __init__(self):
        family, _, model = ENV["AIDER_MODEL"].partition("/")
        assert family == "gemini" and "yes-always: true" in (HOME / ".aider.conf.yml").read_text()
        self.path = f"/models/{model}:streamGenerateContent?alt=sse"
        self.body = {
            "contents": [{"role": "user", "parts": [{"text": TASK}]}],
            "system_instruction": {"parts": [{"text": "Answer with *SEARCH/REPLACE* blocks."}]},
        }

    def read(self, events):
        text = "".join(part["text"] for event in events for part in event["candidates"][0]["content"]["parts"])
        found = re.search(r"^(\S+)\n```\n<<<<<<< SEARCH\n=======\n(.*\n)>>>>>>> REPLACE\n", text, re.M)
        if not found:
            return text, []
        self.body["contents"] += [{"role": "model", "parts": [{"text": text}]}, {"role": "user", "parts": [{"text": "Ok."}]}]
        return "", [found.groups()]


def converse(agent):
    """Turn by turn until the model asks for nothing more."""
    for _ in range(5):
        status, text = send(agent.base, agent.path, agent.headers, agent.body)
        assert status == 200, (status, text)
        said, files = agent.read(events(text))
        for path, content in files:
            pathlib.Path("/workspace", path).write_text(content)
        if not files:
            return said
    raise AssertionError("the model never came to an end")


def telemetry(host):
    """What the proxy says to a host that is on no list."""
    proxy = urllib.parse.urlsplit(ENV["HTTPS_PROXY"])
    link = http.client.HTTPSConnection(proxy.hostname, proxy.port, timeout=60)
    link.set_tunnel(host)
    try:
        link.connect()
        return "open"
    except OSError as refusal:
        return re.search(r"\d{3}", str(refusal))[0]


def places_of_the_key():
    """Everything a job can read that is not the system's: variables and arguments of every process, and files."""
    files = [path for top in ("/home", "/tmp", "/workspace", "/etc", "/dev/shm", "/run") for path in pathlib.Path(top).rglob("*")]
    found = []
    for path in [*files, *pathlib.Path("/proc").glob("[0-9]*/environ"), *pathlib.Path("/proc").glob("[0-9]*/cmdline")]:
        try:
            if path.is_file() and REAL_KEY in path.read_bytes():
                found.append(str(path))
        except OSError:
            pass
    return found


agent = {"claude": Claude, "codex": Codex, "gemini": Gemini, "opencode": Opencode, "aider": Aider}[NAME]()
aside = [send(agent.base, path, agent.headers, agent.body if method == "POST" else None, method)[0] for method, path in agent.aside]
refused = telemetry(agent.host)
print(json.dumps({"said": converse(agent), "aside": aside, "telemetry": refused, "key_in": places_of_the_key()}))
