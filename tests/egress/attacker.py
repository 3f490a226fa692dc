"""Sends what `rows.json` says and prints what came back, one JSON object per row. Knows nothing of what should happen."""

import errno, json, socket, struct, sys, time
from concurrent.futures import ThreadPoolExecutor

PATIENCE = float(sys.argv[1])


def enough(data):
    """The far side's answer to a hello, through a tunnel's head or without one."""
    rest = data.partition(b"\r\n\r\n")[2] if data.startswith(b"HTTP/1.1 200") else data
    return rest[:1] == b"\x16"


def steps(sock, row):
    data = b""
    for kind, value in row["steps"]:
        if kind == "send":
            sock.sendall(bytes.fromhex(value))
        elif kind == "bytewise":
            for byte in bytes.fromhex(value):
                sock.sendall(bytes([byte]))
        elif kind == "pause":
            time.sleep(value / 1000)
        elif kind == "reply":
            data += sock.recv(65536)
        elif kind == "finish":
            sock.shutdown(socket.SHUT_WR)
    return data


def stream(row, address):
    data = b""
    with socket.create_connection(address, 20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            data = steps(sock, row)
            sock.settimeout(row["patience"] or PATIENCE)
            while not enough(data):
                more = sock.recv(65536)
                if not more:
                    return data, "closed"
                data += more
            return data, "open"
        except TimeoutError:
            return data, "open"
        except (ConnectionResetError, BrokenPipeError):
            return data, "closed"


def datagram(row, address):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(min(PATIENCE, 3))
        sock.connect(address)
        for kind, value in row["steps"]:
            sock.send(bytes.fromhex(value))
        try:
            return sock.recv(65536), "open"
        except TimeoutError:
            return b"", "open"


def attempt(row):
    kind, host, port = row["door"]
    try:
        data, end = {"tcp": stream, "udp": datagram}[kind](row, (host, port))
    except OSError as fault:
        data, end = b"", errno.errorcode.get(fault.errno, str(fault))
    return {"reply": data.hex(), "end": end}


with open("rows.json") as rows:
    rows = json.load(rows)
with ThreadPoolExecutor(48) as pool:
    json.dump(list(pool.map(attempt, rows)), sys.stdout)
