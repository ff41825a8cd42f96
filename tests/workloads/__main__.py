"""`make workloads`: unmodified training programs on a mount with --rw, on the embedded server.

usage: python -m tests.workloads [NAME ...]

After each program every file is read by another S3 client and has to be what the mount has; what a program appended
may take a second.  `dcp_two_ranks` has a second mount.  In the end the programs that only read do so on a mount of its
own, as on another host, without --rw.  The environment (torch and friends, about 6 GB) is made once
beside the tests' own; WORKLOADS_VENV names one that is there.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from s3mount.core.symlinks import link_key
from tests.support.mounts import aws_environment, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server, seaweedfs
from tests.workloads import more, programs

_HERE = Path(__file__).parent
#: Programs that read what their twins wrote, and write nothing.
READING = (
    "torch_load", "torch_load_mmap", "dcp_load", "st_load", "st_load_file", "np_load", "np_memmap", "h5_read",
    "pq_read", "pq_read_mmap", "wds_read", "imgfolder", "hf_read_disk", "lmdb_r",
)  # fmt: skip
#: More than the second after which appended content has to be in S3: two cores do everything here.
_LATE_S = 20
#: What is installed after requirements.txt, and what has older wishes than what works.
_AFTERWARDS = (("more.txt",), ("without-dependencies.txt", "--no-deps"))


def environment() -> str:
    """The interpreter that has the libraries, installed when it is missing or out of date."""
    if given := os.environ.get("WORKLOADS_VENV"):
        return f"{given}/bin/python"
    venv = Path(os.environ.get("VENV", ".venv")).resolve().with_name(".venv-workloads")
    lists = [("requirements.txt",), *_AFTERWARDS]
    wanted = "".join((_HERE / name).read_text(encoding="utf-8") for name, *_ in lists)
    stamp = venv / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        for name, *flags in lists:
            pip = [str(venv / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *flags]
            subprocess.run([*pip, "-r", str(_HERE / name)], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return str(venv / "bin/python")


class Bucket:
    """What another client sees, and what of it was found equal before."""

    def __init__(self, server: Server, name: str, mount: Path) -> None:
        self._client = server.client
        self._name = name
        self._mount = mount
        self._equal: set[tuple[str, str, int, int]] = set()

    def differences(self) -> list[str]:
        """Files of the mount that are not in S3 as they are, and objects that the mount does not have."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name)
        objects = {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", [])}
        files = {path.relative_to(self._mount).as_posix(): path for path in self._mount.rglob("*") if _is_file(path)}
        links = [path.relative_to(self._mount).as_posix() for path in self._mount.rglob("*") if path.is_symlink()]
        wrong = [f"{key} is not in S3" for key in files if key not in objects]
        known = files.keys() | set(map(link_key, links))
        wrong += [f"{key} is only in S3" for key in objects if not key.endswith("/") and key not in known]
        for key in files.keys() & objects.keys():
            found = files[key].stat()
            version = key, objects[key], found.st_mtime_ns, found.st_size
            if version not in self._equal:
                content = self._client.get_object(Bucket=self._name, Key=key)["Body"].read()
                if content == files[key].read_bytes():
                    self._equal.add(version)
                else:
                    wrong.append(f"{key} has {len(content)} other bytes in S3, {found.st_size} on the mount")
        return wrong

    def settle(self) -> tuple[float, list[str]]:
        """Seconds until there is no difference, and those that stay."""
        began, wrong = time.perf_counter(), self.differences()
        if not wrong:
            return 0.0, []

        def is_equal() -> bool:
            wrong[:] = self.differences()
            return not wrong

        with contextlib.suppress(TimeoutError):
            wait_until(is_equal, _LATE_S, "equal content in S3")
        return time.perf_counter() - began, wrong


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def run_one(python: str, script: str, name: str, mount: Path, second: Path) -> tuple[bool, float, str]:
    """Whether the program ended well, its seconds, and the last thing it said."""
    variables = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    env = os.environ | variables | {"JAX_PLATFORMS": "cpu", "SECOND_DIR": str(second)}
    began = time.perf_counter()
    done = subprocess.run(
        [python, script, "one", name, str(mount)], capture_output=True, text=True, env=env, check=False
    )
    said = done.stderr.strip()
    Path(f"{tempfile.gettempdir()}/s3mount-workload-{name}.log").write_text(done.stdout + said, encoding="utf-8")
    return done.returncode == 0, time.perf_counter() - began, (said.splitlines() or [""])[-1]


def write(python: str, server: Server, bucket: str, work: Path, names: list[str]) -> list[str]:
    """Run programs on a mount with --rw; returns those that failed."""
    scripts = {name: "programs.py" for name in programs.NAMES} | {name: "more.py" for name in more.NAMES}
    failed = []
    settings = {"url": server.url, "env": aws_environment()}
    with (
        mounted(bucket, work / "one", "--rw", **settings) as mount,
        mounted(bucket, work / "two", "--rw", **settings) as second,
    ):
        objects = Bucket(server, bucket, mount.path)
        for name in names or scripts:
            is_done, seconds, said = run_one(python, str(_HERE / scripts[name]), name, mount.path, second.path)
            late_s, wrong = objects.settle()
            failed += [name] if wrong or not is_done else []
            late = f"  in S3 after {late_s:.1f} s" if late_s else ""
            why = "  ".join([*wrong[:3], "" if is_done else said])
            print(f"{'FAIL' if wrong or not is_done else 'ok':5}{name:20}{seconds:7.1f} s{late}  {why}", flush=True)
        print("\n".join([*mount.warnings(), *second.warnings()]))
    return failed


def read(python: str, server: Server, bucket: str, work: Path, names: list[str]) -> list[str]:
    """Run the programs that only read on another mount, without --rw; returns those that failed."""
    failed = []
    with mounted(bucket, work / "three", url=server.url, env=aws_environment()) as mount:
        for name in [each for each in READING if not names or each in names]:
            is_done, seconds, said = run_one(python, str(_HERE / "programs.py"), name, mount.path, mount.path)
            failed += [] if is_done else [f"{name} (reading)"]
            print(
                f"{'ok' if is_done else 'FAIL':5}{name:20}{seconds:7.1f} s  (reading) {'' if is_done else said}",
                flush=True,
            )
        print("\n".join(mount.warnings()))
    return failed


def main(names: list[str]) -> int:
    python = environment()
    with tempfile.TemporaryDirectory(prefix="s3mount-workloads-") as temporary:
        work = Path(temporary).resolve()
        with seaweedfs(work / "weed") as server:
            bucket = server.make_bucket()
            failed = write(python, server, bucket, work, names) + read(python, server, bucket, work, names)
    print(f"failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
