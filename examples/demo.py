#!/usr/bin/env python3
"""s3mount from end to end on this machine (`make demo`).

An S3 server on loopback gets a real data set, scikit-learn's 1,797 handwritten digits, as PNG
files in class folders.  `s3mount` mounts the bucket, and train_digits.py, which has never heard
of S3, trains on the mount twice.  Everything lives in one temporary directory and ends with this
script, also when a step fails or somebody presses Ctrl-C.
"""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import boto3
import numpy as np
from botocore.exceptions import BotoCoreError, ClientError
from PIL import Image
from sklearn.datasets import load_digits

BUCKET = "digits"
ACCESS_KEY, SECRET_KEY = "demo", "demo-secret"
BIN = Path(sys.executable).parent
TRAIN = Path(__file__).with_name("train_digits.py")


def main() -> int:
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    check_machine()
    use_demo_credentials()
    try:
        with tempfile.TemporaryDirectory(prefix="s3mount-demo-") as directory:
            run(Path(directory))
    except (RuntimeError, TimeoutError, subprocess.CalledProcessError) as error:
        print(f"\nthe demo failed: {error}", file=sys.stderr)
        return 1
    print("\nThe demo is done; nothing of it is left on this machine.")
    return 0


def run(directory: Path) -> None:
    """The steps, in order."""
    step("Starting an S3 server on loopback (SeaweedFS)")
    with s3_server(directory / "server") as url:
        step("Uploading scikit-learn's handwritten digits as PNG files in class folders")
        client = boto3.client("s3", endpoint_url=url)
        n_files, n_bytes = upload_digits(client)
        print(f"{n_files} files, {n_bytes:,} bytes in s3://{BUCKET}/train/")

        step("Mounting the bucket")
        logs = directory / "logs"
        with mounted(url, directory / "mnt", logs) as mount_point:
            print(f"{mount_point} has the folders {' '.join(sorted(os.listdir(mount_point / 'train')))}")
            for title in ("the first time: the files come from S3", "again: they come from the page cache"):
                step(f"Training, {title}")
                train(mount_point / "train")

        step("What the mount did")
        line, n_read = summary(logs)
        print(line)
        print(f"Two trainings read {2 * n_bytes:,} bytes of files; {n_read:,} bytes came from S3.")


def check_machine() -> None:
    """Say what is missing before anything is started."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        sys.exit("the demo mounts with FUSE: /dev/fuse must exist and be open to you (a container needs --device)")
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        sys.exit("the demo mounts with FUSE: run it as root, or install the package fuse3")
    missing = [name for name in ("s3mount", "weed") if not (BIN / name).exists()]
    if missing:
        sys.exit(f"{' and '.join(missing)} not found in {BIN}: run `make demo`, which installs them")


def use_demo_credentials() -> None:
    """For boto3 and s3mount alike: the demo's keys, and nothing of yours."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


# -- the S3 server and its data ------------------------------------------------------------------


@contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """SeaweedFS with all its parts in one process: telemetry off, loopback only.  Gives its URL."""
    data = directory / "data"
    data.mkdir(parents=True)
    identity = {
        "name": "demo",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin"],
    }
    config = directory / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
    s3_port, master_port, volume_port, filer_port = free_ports(4)
    log = directory / "weed.log"
    with process(
        [
            BIN / "weed", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            f"-master.port={master_port}", f"-volume.port={volume_port}", f"-filer.port={filer_port}",
            "-s3", f"-s3.port={s3_port}", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.volumeSizeLimitMB=64", "-volume.max=100",
        ],
        log,
    ) as server:  # fmt: skip
        url = f"http://127.0.0.1:{s3_port}"
        client = boto3.client("s3", endpoint_url=url)

        def stores_objects() -> bool:
            if server.poll() is not None:
                raise RuntimeError(f"the S3 server ended with {server.returncode}:\n{tail(log)}")
            try:
                client.create_bucket(Bucket="ready")
                client.put_object(Bucket="ready", Key="ready", Body=b"ready")
            except (BotoCoreError, ClientError):
                return False
            return True

        wait_until(stores_objects, 60, "the S3 server stored an object")
        yield url


def upload_digits(client: Any) -> tuple[int, int]:
    """train/CLASS/NUMBER.png for each digit; returns how many files and bytes."""
    client.create_bucket(Bucket=BUCKET)
    digits = load_digits()

    def upload(number: int) -> int:
        file = io.BytesIO()
        pixels = (digits.images[number] * 15).astype(np.uint8)  # 16 shades of grey
        Image.fromarray(pixels).save(file, format="PNG")
        key = f"train/{digits.target[number]}/{number:04}.png"
        client.put_object(Bucket=BUCKET, Key=key, Body=file.getvalue(), ContentType="image/png")
        return file.tell()

    with ThreadPoolExecutor(8) as threads:
        sizes = list(threads.map(upload, range(len(digits.target))))
    return len(sizes), sum(sizes)


# -- the mount -----------------------------------------------------------------------------------


@contextmanager
def mounted(url: str, mount_point: Path, logs: Path) -> Iterator[Path]:
    """The bucket on a directory, by the command that a user types."""
    mount_point.mkdir()
    arguments = [BUCKET, mount_point, "--endpoint-url", url, "--force-path-style", "--log-directory", logs]
    print("$ s3mount", *arguments)
    # In a session of its own: a Ctrl-C must not end it between forking the daemon and mounting.
    command = subprocess.Popen([BIN / "s3mount", *arguments], start_new_session=True)
    try:
        if command.wait() != 0:
            raise RuntimeError(f"s3mount ended with {command.returncode}")
        yield mount_point
    finally:
        command.wait()
        unmount(mount_point, logs)


def unmount(mount_point: Path, logs: Path) -> None:
    """Unmount as a user does, and wait for the daemon to end."""
    tool = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    lazily = "-l" if os.geteuid() == 0 else "-z"

    def is_unmounted() -> bool:  # a reader that was just killed may hold the mount for a moment
        return subprocess.run([*tool, mount_point], check=False, capture_output=True).returncode == 0

    if is_mounted(mount_point):
        step("Unmounting")
        print("$", *tool, mount_point)
        try:
            wait_until(is_unmounted, 10, "the mount was no longer busy")
        finally:
            if is_mounted(mount_point):
                subprocess.run([*tool, lazily, mount_point], check=False)
    for log in logs.glob("s3mount-*.log"):
        command_line = Path("/proc", log.stem.removeprefix("s3mount-"), "cmdline")
        wait_until(lambda path=command_line: not is_running(path), 30, "the daemon ended")


def is_mounted(path: Path) -> bool:
    """Asks the kernel's table, because a mount whose daemon is gone does not answer."""
    escaped = str(path).replace(" ", "\\040")
    return f" {escaped} " in Path("/proc/self/mounts").read_text(encoding="utf-8")


def is_running(command_line: Path) -> bool:
    """Whether the process is there and not a zombie that nobody has waited for."""
    try:
        return b"s3mount" in command_line.read_bytes()
    except FileNotFoundError:
        return False


def summary(logs: Path) -> tuple[str, int]:
    """The daemon's last line (requests by kind, bytes, answers to the kernel), and the bytes in it."""
    (log,) = logs.glob("s3mount-*.log")
    found = re.search(r"unmounted after .* (\d+) bytes read.*", log.read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError(f"the daemon did not end in order:\n{tail(log)}")
    return found[0], int(found[1])


def train(directory: Path) -> None:
    command = [sys.executable, TRAIN, directory]
    print("$ python", TRAIN.name, directory)
    sys.stdout.flush()
    with process(command, None) as training:
        if training.wait() != 0:
            raise RuntimeError(f"{TRAIN.name} ended with {training.returncode}")


# -- processes, ports, signals -------------------------------------------------------------------


@contextmanager
def process(command: list[Any], log: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; the whole group ends with the block."""
    with open(log or os.devnull, "ab") as sink:
        output = sink if log else None
        child = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield child
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if child.poll() is None:
                os.killpg(child.pid, number)
                try:
                    child.wait(2)
                except subprocess.TimeoutExpired:
                    continue


def stop(number: int, _: object) -> NoReturn:
    """The first signal ends the demo; a second one must not end the cleaning up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("\nstopping …", file=sys.stderr)
    sys.exit(128 + number)


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses; SeaweedFS takes each port + 10,000 for gRPC too."""
    found: list[int] = []
    for port in range(18_000, 28_000):
        if all(is_free(candidate) for candidate in (port, port + 10_000)):
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("there are no free ports on loopback")


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(is_true: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.perf_counter() + timeout_s
    while not is_true():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"it did not happen within {timeout_s} s that {what}")
        time.sleep(0.1)  # noqa: TID251  another process


def tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])


def step(title: str) -> None:
    print(f"\n== {title}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
