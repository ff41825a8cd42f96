"""`make workloads`: what unmodified training programs read, through a real mount.

The programs of `programs.py` write their files to a local directory; these are uploaded as they
are; then every program that only reads runs on the mount.  The environment (torch and friends,
about 6 GB) is made once beside the tests' own.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.mounts import aws_environment, mounted
from tests.support.servers import Server, seaweedfs

_HERE = Path(__file__).parent
_PROGRAMS = str(_HERE / "programs.py")
#: Programs that read what their twins wrote, and write nothing.
READING = [
    "torch_load", "torch_load_mmap", "dcp_load", "st_load", "st_load_file", "np_load", "np_memmap", "h5_read",
    "pq_read", "pq_read_mmap", "wds_read", "imgfolder", "hf_read_disk", "lmdb_r",
]  # fmt: skip


def environment() -> str:
    """The interpreter that has the libraries, installed when it is missing or out of date."""
    venv = Path(os.environ.get("VENV", ".venv")).resolve().with_name(".venv-workloads")
    requirements = _HERE / "requirements.txt"
    stamp = venv / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != requirements.read_text(encoding="utf-8"):
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(venv / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(requirements)], check=True)
        stamp.write_text(requirements.read_text(encoding="utf-8"), encoding="utf-8")
    return str(venv / "bin/python")


def upload(server: Server, bucket: str, directory: Path) -> int:
    """Every file of a directory, as the key of its relative path."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    for path in files:
        server.client.upload_file(str(path), bucket, path.relative_to(directory).as_posix())
    return len(files)


def main() -> int:
    python = environment()
    with tempfile.TemporaryDirectory(prefix="s3mount-workloads-") as temporary:
        work = Path(temporary).resolve()
        local = work / "local"
        local.mkdir()
        print("writing locally", flush=True)
        subprocess.run([python, _PROGRAMS, "run", str(local)], check=True, stdout=subprocess.DEVNULL)
        with seaweedfs(work / "weed") as server:
            bucket = server.make_bucket()
            print(f"uploaded {upload(server, bucket, local)} files; reading through the mount", flush=True)
            with mounted(bucket, work, url=server.url, env=aws_environment()) as mount:
                done = subprocess.run([python, _PROGRAMS, "run", str(mount.path), *READING], check=False)
                print("\n".join(mount.warnings()))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
