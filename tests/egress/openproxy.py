"""A proxy without any of pond's controls: it takes every spelling, asks for every name, checks first and resolves again to
connect, and dials whatever comes out. What an attack reaches through this is what the control keeps it from."""

import re, socket, sys, threading, urllib.parse

CONNECT = re.compile(rb"connect\s+(.*?)(\s+HTTP/|\r\n)", re.I | re.S)
ABSOLUTE = re.compile(rb"^[A-Z]+ (https?)://([^/ :]+)(?::(\d+))?/")

# The C library answers from one buffer of the process: two threads at once read each other's port.
SERVICES = threading.Lock()


def split(target):
    text = urllib.parse.unquote(target.decode("utf-8", "replace"))
    text = re.sub(r"^\w+://", "", text)
    text = re.sub(r"[\x01-\x20\x7f]", "", text)
    text = text.rsplit("@", 1)[-1]
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
    else:
        host, rest = re.match(r"([^:/#?\\\0]*)(.*)", text, re.S).groups()
    port = rest.rstrip("/").rpartition(":")[2] if ":" in rest else "443"
    if port.lstrip("+").isdigit():
        return host, int(port)
    with SERVICES:
        return host, socket.getservbyname(port)


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client):
    head = b""
    while not re.search(rb"\r?\n\r?\n", head):
        more = client.recv(65536)
        if not more:
            return
        head += more
    if connect := CONNECT.search(head):
        host, port = split(connect[1])
        first = re.split(rb"\r?\n\r?\n", head, 1)[1]
    elif absolute := ABSOLUTE.match(head):
        host, port, first = absolute[2].decode(), int(absolute[3] or (80 if absolute[1] == b"http" else 443)), head
    else:
        return
    socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    upstream = socket.create_connection((host, port), 5)
    upstream.settimeout(None)
    if connect:
        client.sendall(b"HTTP/1.1 200 open\r\n\r\n")
    upstream.sendall(first)
    threading.Thread(target=pump, args=(upstream, client), daemon=True).start()
    pump(client, upstream)


def guarded(client):
    with client:
        try:
            serve(client)
        except (OSError, ValueError, AttributeError):
            pass


def listen(port):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
    while True:
        threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()


for port in (3128, 8377, 443):
    threading.Thread(target=listen, args=(port,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
