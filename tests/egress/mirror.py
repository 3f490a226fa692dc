"""Builds small mirrors of package hosts below the folder given, one folder per host: one package each, called pond-hello."""

import base64, hashlib, io, json, os, subprocess, sys, tarfile, zipfile

root = sys.argv[1]


def put(host, path, data):
    file = os.path.join(root, host, path)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "wb") as out:
        out.write(data if isinstance(data, bytes) else data.encode())


def archive(files):
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return memory.getvalue()


def pypi():
    info = "pond_hello-1.0.dist-info"
    files = {
        "pond_hello.py": "GREETING = 'hello from pypi'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: pond-hello\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"pond_hello.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    wheel = memory.getvalue()
    name = "pond_hello-1.0-py3-none-any.whl"
    put("files.pythonhosted.org", f"packages/{name}", wheel)
    url = f"https://files.pythonhosted.org/packages/{name}#sha256={hashlib.sha256(wheel).hexdigest()}"
    put("pypi.org", "simple/pond-hello/index.html", f'<!DOCTYPE html><a href="{url}">{name}</a>')


def npm():
    manifest = {"name": "pond-hello", "version": "1.0.0", "main": "index.js"}
    package = archive({
        "package/package.json": json.dumps(manifest),
        "package/index.js": "module.exports = 'hello from npm';\n",
    })
    digest = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    dist = {"tarball": "https://registry.npmjs.org/tarballs/pond-hello-1.0.0.tgz", "integrity": digest}
    document = {"name": "pond-hello", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": manifest | {"dist": dist}}}
    put("registry.npmjs.org", "pond-hello", json.dumps(document))
    put("registry.npmjs.org", "tarballs/pond-hello-1.0.0.tgz", package)


def crates():
    package = archive({
        "pond-hello-1.0.0/Cargo.toml": '[package]\nname = "pond-hello"\nversion = "1.0.0"\nedition = "2021"\n',
        "pond-hello-1.0.0/src/lib.rs": 'pub const GREETING: &str = "hello from crates";\n',
    })
    entry = {"name": "pond-hello", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    put("index.crates.io", "config.json", json.dumps({"dl": "https://static.crates.io/crates"}))
    put("index.crates.io", "po/nd/pond-hello", json.dumps(entry | {"cksum": hashlib.sha256(package).hexdigest()}) + "\n")
    put("static.crates.io", "crates/pond-hello/1.0.0/download", package)


def github():
    work = os.path.join(root, "work")
    git = lambda *words: subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, cwd=work, stdout=subprocess.DEVNULL)
    os.makedirs(work)
    git("init", "--quiet", "--initial-branch=main")
    with open(os.path.join(work, "README"), "w") as out:
        out.write("hello from git\n")
    git("add", "README")
    git("commit", "--quiet", "--message=hello")
    bare = os.path.join(root, "github.com/pond/hello.git")
    git("clone", "--quiet", "--bare", work, bare)
    subprocess.run(["git", "update-server-info"], check=True, cwd=bare)


pypi()
npm()
crates()
github()
