"""make install-service: every file where a packager wants it, and dependencies by their hashes."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_files_are_where_they_belong(work: Path) -> None:
    """PREFIX and DESTDIR are heeded; the units call the commands of PREFIX; secrets have a file of mode 0600."""
    env = {**os.environ, "DESTDIR": str(work), "PREFIX": "/opt/there"}
    subprocess.run([ROOT / ".ci/install-service"], env=env, check=True, capture_output=True)
    found = {str(path.relative_to(work)): path for path in work.rglob("*") if path.is_file()}
    units = ["etc/systemd/system/s3mount@.service", "etc/systemd/system/s3mount-mount@.service"]
    units.append("etc/systemd/user/s3mount-user@.service")
    for name in units:
        text = found[name].read_text(encoding="utf-8")
        assert "/usr/local" not in text
        assert re.search(r"^ExecStart=/opt/there/bin/s3mount", text, re.MULTILINE)
    assert {f"opt/there/{path.relative_to(ROOT)}" for path in (ROOT / "share").rglob("*") if path.is_file()} <= set(
        found
    )
    assert found["etc/s3mount/example.env"].stat().st_mode & 0o777 == 0o600
    assert found["etc/s3mount/example.conf"].stat().st_mode & 0o777 == 0o644
    assert "opt/there/lib/sysusers.d/s3mount.conf" in found


def test_the_example_is_complete() -> None:
    """It parses, and names what the privileged half needs: an absolute directory."""
    example = tomllib.loads((ROOT / "examples/example.conf").read_text(encoding="utf-8"))
    assert {"bucket", "directory"} <= example.keys()
    assert os.path.isabs(example["directory"])


def test_every_dependency_is_pinned_by_hash() -> None:
    """The lock has each dependency of pyproject.toml, at the version of constraints.txt, each line with hashes."""
    pinned = dict(re.findall(r"^([a-z0-9_-]+)==(\S+)", LOCK, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[^a-z0-9-]", line)[0] for line in project["dependencies"]}
    assert wanted <= pinned.keys()
    known = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    known = {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in known.items()}
    assert {name: version for name, version in pinned.items() if known.get(name, version) != version} == {}
    blocks = re.split(r"\n(?=[a-z0-9])", LOCK.partition("\na")[2])
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
