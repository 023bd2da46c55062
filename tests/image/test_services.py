"""JupyterLab, TensorBoard and SSH as a person uses them; mirrors and proxies; what greets a person at a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MAPPED = {"PUID": "1234", "PGID": "5678"}
# Logs in with the token, runs a cell with torch, saves a notebook; leaves the kernel in the middle of another cell.
CELL = """
import json, sys, time, uuid
import requests, websocket
base, head = "http://127.0.0.1:8888/api", {"Authorization": "token a-secret"}
for _ in range(240):
    try:
        requests.get(base, timeout=5)
        break
    except requests.ConnectionError:
        time.sleep(0.5)
assert requests.post(base + "/kernels").status_code == 403
kernel = requests.post(base + "/kernels", headers=head).json()["id"]
ws = websocket.create_connection(f"ws://127.0.0.1:8888/api/kernels/{kernel}/channels", header=head, timeout=120)
def send(code):
    made = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    ws.send(json.dumps({"header": made, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}))
send("import os, torch; print((torch.ones(3) * 2).sum().item(), os.getuid(), os.getcwd(), os.environ['CUDA_HOME'])")
while True:
    got = json.loads(ws.recv())
    if got["msg_type"] == "error":
        sys.exit(str(got["content"]))
    if got["msg_type"] == "stream" and got["content"]["name"] == "stdout":
        print(got["content"]["text"], end="")
        break
cells = [{"cell_type": "code", "source": "1", "metadata": {}, "outputs": [], "execution_count": None, "id": "a"}]
note = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
put = requests.put(base + "/contents/output/a.ipynb", headers=head, json={"type": "notebook", "content": note})
assert put.status_code == 201, put.text
send("import time; time.sleep(999)")
time.sleep(1)
"""
SSH = """
ssh-keygen -q -t ed25519 -N '' -f /tmp/key
export PUBLIC_KEY="$(cat /tmp/key.pub)" HF_ENDPOINT='http://a b/"c" \\d #e' {more}
/opt/verify/entrypoint.sh true || exit 9
try() {{ ssh -q -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$@"; }}
for i in $(seq 30); do try -i /tmp/key {who}@127.0.0.1 true && break; sleep 0.2; done
"""
# Answers every request with 404 and prints what was asked for.
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked", self.path, flush=True)
        self.send_error(404)
    do_HEAD = do_GET
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", 9000), Handler).serve_forever()
"""
TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services as compose.yaml describes them."""
    env = {**os.environ, "JUPYTER_PORT": "8888", "TENSORBOARD_PORT": "6006"}
    command = ["docker", "compose", "-f", "compose.yaml", "config", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


Serve = Callable[..., Any]


@pytest.fixture
def serve(client: Any, image: Any, services: dict[str, Any]) -> Any:
    """Starts a service without Compose, its own command as the container's, and removes it."""
    made = []

    def start(name: str, **settings: Any) -> Any:
        made.append(client.containers.run(image.attrs["asked"], services[name]["command"], detach=True, **settings))
        return made[-1]

    yield start
    for one in made:
        one.remove(force=True, v=True)


def healthy(container: Any, service: dict[str, Any]) -> bool:
    """What Compose's health check of the service says now."""
    kind, *command = service["healthcheck"]["test"]
    assert kind == "CMD"
    code: int = container.exec_run(command).exit_code
    return code == 0


def becomes_healthy(container: Any, service: dict[str, Any]) -> bool:
    for _ in range(240):
        if healthy(container, service):
            return True
        time.sleep(0.5)
    return False


def test_jupyter_runs_a_cell_saves_it_and_stops_in_time(serve: Serve) -> None:
    """A kernel busy with a cell does not make `docker stop` end in a kill, whose exit code is 137."""
    jupyter = serve("jupyter", environment={**MAPPED, "JUPYTER_TOKEN": "a-secret"})
    code, out = jupyter.exec_run(["python", "-c", CELL])
    home = "/usr/local/cuda" if b"toolkit" in jupyter.exec_run(["ls", "-d", "/usr/local/cuda"]).output else ""
    assert (code, out.decode().split()[:3]) == (0, ["6.0", "1234", "/workspace"]), out.decode()
    assert home in out.decode()
    assert jupyter.exec_run(["stat", "-c", "%u:%g", "/workspace/output/a.ipynb"]).output == b"1234:5678\n"
    jupyter.stop(timeout=10)
    assert jupyter.wait(timeout=60)["StatusCode"] == 0
    assert b"a-secret" not in jupyter.logs()


def test_jupyter_prints_the_token_it_makes_up(serve: Serve, services: dict[str, Any]) -> None:
    tokens = set()
    for _ in range(2):
        jupyter = serve("jupyter")
        assert becomes_healthy(jupyter, services["jupyter"])
        log = jupyter.logs().decode()
        found = {part.split()[0] for part in log.split("token=")[1:]}
        assert {len(token) for token in found} == {48}
        assert f"http://127.0.0.1:8888/lab?token={next(iter(found))}" in log
        tokens |= found
    assert len(tokens) == 2


@pytest.mark.parametrize("name", ["jupyter", "tensorboard"])
def test_health_check_tells_a_server_that_hangs(serve: Serve, services: dict[str, Any], name: str) -> None:
    container = serve(name)
    assert becomes_healthy(container, services[name])
    assert container.exec_run(["pkill", "-STOP", "-f", name]).exit_code == 0
    assert not healthy(container, services[name])


def test_tensorboard_shows_what_is_logged_and_stops_in_time(serve: Serve, services: dict[str, Any]) -> None:
    board = serve("tensorboard", environment=MAPPED)
    script = (
        "from torch.utils.tensorboard import SummaryWriter as W; w = W('/workspace/output/run/1'); "
        "w.add_scalar('loss', 1.5, 1); w.close()"
    )
    assert board.exec_run(["python", "-c", script], user="1234:5678").exit_code == 0
    assert becomes_healthy(board, services["tensorboard"])
    for _ in range(40):
        runs = json.loads(board.exec_run(["curl", "-s", "http://127.0.0.1:6006/data/runs"]).output)
        if runs:
            break
        time.sleep(0.5)
    assert runs == ["run/1"]
    board.stop(timeout=10)
    assert board.wait(timeout=60)["StatusCode"] == 0


def over_ssh(run: Any, who: str, script: str, more: str = "") -> Any:
    return run("bash", "-c", SSH.format(who=who, more=more) + script)


def test_ssh_lets_in_the_mapped_user_alone_with_the_containers_environment(run: Any, facts: dict[str, Any]) -> None:
    script = """
        try -i /tmp/key workspace@127.0.0.1 'id -u; echo "$HF_ENDPOINT"; command -v python'
        try -i /tmp/key workspace@127.0.0.1 'bash -lc "command -v python; echo $HF_HOME; echo cuda=$CUDA_HOME"'
        try -i /tmp/key workspace@127.0.0.1 'echo key=$PUBLIC_KEY'
        echo put /tmp/key.pub /workspace/sent | sftp -b - -q -i /tmp/key -o StrictHostKeyChecking=no \
          -o UserKnownHostsFile=/dev/null workspace@127.0.0.1 >/dev/null && stat -c %u /workspace/sent
        try -i /tmp/key root@127.0.0.1 true || echo no root
        ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o PubkeyAuthentication=no workspace@127.0.0.1 2>&1 |
          grep -o 'denied (publickey)'
        stat -c %a /run/sshd/config /run/sshd/host_key
    """
    done = over_ssh(run, "workspace", script, "PUID=1234")
    cuda = "cuda=/usr/local/cuda" if facts["target"] == "devel" else "cuda="
    assert done.out.splitlines() == [
        *("1234", 'http://a b/"c" \\d #e', "/opt/venv/bin/python"),
        *("/opt/venv/bin/python", "/workspace/.cache/huggingface", cuda, "key=", "1234", "no root"),
        *("denied (publickey)", "600", "600"),
    ]


def test_ssh_host_keys_are_made_at_start(run: Any) -> None:
    first, second = (over_ssh(run, "root", "cat /run/sshd/host_key.pub").out for _ in range(2))
    assert first.startswith("ssh-ed25519 ")
    assert first.split()[1] != second.split()[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"environment": {"PUBLIC_KEY": "not a key"}}, "PUBLIC_KEY holds no public key"),
        ({"environment": {"PUBLIC_KEY": "ssh-ed25519 AAAA"}, "user": "12345:0"}, "PUBLIC_KEY has no effect"),
        ({"environment": {"APT_MIRROR": "mirror.example"}}, "is not the address of a mirror"),
    ],
)
def test_what_has_no_effect_is_told(sh: Any, settings: dict[str, Any], words: str) -> None:
    done = sh("pgrep sshd; echo started", **settings)
    assert (done.code, done.out) == (0, "started\n")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_without_a_key_nothing_listens(sh: Any) -> None:
    assert sh("cat /proc/net/tcp /proc/net/tcp6 | grep -c ' 0A '", network_mode="none").out == "0\n"


@pytest.mark.parametrize(
    ("environment", "command", "asked"),
    [
        ({"APT_MIRROR": "http://127.0.0.1:9000/own/debian"}, "apt-get update", "/own/debian/dists/"),
        (
            {"PIP_INDEX_URL": "http://127.0.0.1:9000/simple", **MAPPED},
            "pip download --no-deps some-name",
            "/simple/some-name/",
        ),
        (
            {"HF_ENDPOINT": "http://127.0.0.1:9000", **MAPPED},
            'python -c \'import huggingface_hub as h; h.hf_hub_download("some/model", "a.bin")\'',
            "/some/model/resolve/main/a.bin",
        ),
        ({"HTTP_PROXY": "http://127.0.0.1:9000"}, "curl -s http://some.invalid/file", "http://some.invalid/file"),
        ({"HTTP_PROXY": "http://127.0.0.1:9000"}, "apt-get update", "http://"),
        ({"http_proxy": "http://127.0.0.1:9000"}, "curl -s http://localhost:9000/local", "/local"),
    ],
    ids=["apt", "pip", "hub", "proxy", "apt-proxy", "not-the-container-itself"],
)
def test_mirrors_and_proxies(sh: Any, environment: dict[str, str], command: str, asked: str) -> None:
    script = (
        "python /server.py & until curl -s --noproxy '*' -o /dev/null http://127.0.0.1:9000/ready; do sleep 0.1; done; "
    )
    done = sh(
        f"{script} timeout 60 {command} >/dev/null 2>&1; true", files={"/server.py": SERVER}, environment=environment
    )
    assert done.err == ""
    paths = [line.removeprefix("asked ") for line in done.out.splitlines()]
    assert any(path.startswith(asked) for path in paths), done.out


def at_terminal(sh: Any, shell: str, **settings: Any) -> list[str]:
    """The lines a person sees who logs in and leaves at once; the prompt's own line is left out."""
    script = "printf 'exit\\n' | python /terminal.py"
    done = sh(f"{script} {shell}", files={"/terminal.py": TERMINAL}, **settings)
    assert (done.code, done.err) == (0, "")
    return [line for line in done.out.splitlines() if line and "exit" not in line and "logout" not in line]


@pytest.mark.parametrize("shell", ["bash -l", "su - workspace"])
def test_message_of_the_day(sh: Any, facts: dict[str, Any], shell: str) -> None:
    lines = at_terminal(sh, shell)
    assert 3 < len(lines) <= 6
    assert f"PyTorch {facts['lock']['packages']['torch']}" in lines[0]
    assert "runtime 12.8 · no driver" in lines[1]
    assert (facts["toolkit"] or "no toolkit") in lines[1]
    assert "no volume" in lines[3]


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("bash -l", {"WORKSPACE_MOTD": "off"}),
        ("sh -c 'touch ~/.hushlogin; bash -l'", {}),
        ("bash", {}),
        ("bash -lc true", {}),
        ("bash -lic true", {}),
        ("bash -lc 'bash /etc/profile'", {}),
    ],
)
def test_no_message_where_nobody_asked(sh: Any, shell: str, environment: dict[str, str]) -> None:
    assert at_terminal(sh, shell, environment=environment) == []


def test_message_comes_once_over_ssh(run: Any) -> None:
    script = "printf 'bash -l\\nexit\\nexit\\n' | ssh -tt -q -i /tmp/key -o StrictHostKeyChecking=no root@127.0.0.1"
    done = over_ssh(run, "root", script)
    assert done.out.count("PyTorch") == 1
    assert "WARRANTY" not in done.out
    assert "Linux" not in done.out


@pytest.mark.parametrize("settings", [{}, {"environment": MAPPED}, {"user": "12345:0"}])
def test_gpu_says_why_there_is_none(run: Any, settings: dict[str, Any]) -> None:
    done = run("gpu", **settings)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("No GPU: ")
    assert len(done.err.splitlines()) == 1


def test_gpu_is_not_taken_over_by_a_file_of_the_folder(sh: Any) -> None:
    done = sh("mkdir verify && echo 'raise SystemExit(9)' >verify/__init__.py && cp verify/__init__.py json.py && gpu")
    assert done.code == 1
