"""fstab, mount(8) and umount(8): a file system table of the test's own, in a mount namespace of its own.

mount(8) looks for helpers in /sbin only, so the script puts one there that runs this tree's.
"""

import sys
from pathlib import Path

import pytest

from tests.support.namespaces import in_namespace
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]

HELPER = f"#!{sys.executable}\nfrom s3mount.cli.entry import mount_helper\n\nmount_helper()\n"


def prepared(work: Path, *lines: str) -> str:
    """A script's beginning: the helper under both its names, and the table in $T."""
    for name in ("upper", "rest"):
        (work / name).mkdir()
    helper, table = work / "helper", work / "fstab"
    helper.write_text(HELPER, encoding="utf-8")
    helper.chmod(0o755)
    table.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sbin = Path("/sbin").resolve()
    return f"""
        mount -t overlay overlay -o lowerdir={sbin},upperdir={work}/upper,workdir={work}/rest {sbin}
        ln -s {helper} {sbin}/mount.fuse.s3mount
        ln -s {helper} {sbin}/mount.s3mount
        T={table}
        mounts() {{ grep -F ' {work}/' /proc/self/mountinfo | sed -n 's/.* - fuse.s3mount //p'; }}
    """


def reach(server: Server) -> str:
    return f"endpoint-url={server.url},force_path_style,no-log"


def test_a_line_of_fstab(weed: Server, work: Path) -> None:
    """`mount -a` mounts a line of fstab, with spaces and commas in its fields, and leaves what is mounted alone
    when run again; `umount` ends it, and `mount DIRECTORY` mounts it by itself.
    """
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="p/f", Body=b"content")
    directory, cache = work / "a directory", work / "cache, with"
    directory.mkdir()
    (target, where) = (str(each).replace(" ", r"\040") for each in (directory, str(cache).replace(",", r"\,")))
    options = f"_netdev,nofail,ro,x-systemd.automount,noexec,metadata_ttl=indefinite,cache={where},{reach(weed)}"
    script = prepared(work, f"s3://{bucket}/p/ {target} fuse.s3mount {options} 0 0") + f"""
        mount -a -T $T; mount -a -T $T
        mounts
        cat '{directory}/f'; echo
        umount '{directory}'
        mounts
        mount -T $T '{directory}'
        mounts
        umount '{directory}'
    """  # fmt: skip
    result = in_namespace(script)
    assert result.returncode == 0, result.stderr
    first, content, again = result.stdout.splitlines()
    assert first.startswith(f"s3://{bucket}/p/ ro,")
    assert (content, again) == ("content", first)
    assert cache.is_dir()


@pytest.mark.parametrize("kind", ["s3mount", "fuse.s3mount"])
def test_both_types(weed: Server, work: Path, kind: str) -> None:
    """A mount by hand works by either name of the type, and the mount's own options show that it is mounted so."""
    bucket = weed.make_bucket()
    (work / "mnt").mkdir()
    script = prepared(work) + f"""
        mount -t {kind} -o noexec,{reach(weed)} {bucket} {work}/mnt
        grep ' {work}/mnt ' /proc/self/mountinfo | grep -o noexec
        umount {work}/mnt
    """  # fmt: skip
    result = in_namespace(script)
    assert (result.returncode, result.stdout) == (0, "noexec\n"), result.stderr


def test_an_automount(weed: Server, work: Path) -> None:
    """Under an automount, as x-systemd.automount makes one, the first program that looks in waits for the mount
    and then reads it.
    """
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="f", Body=b"content")
    directory = work / "mnt"
    directory.mkdir()
    automount = f"{sys.executable} -m tests.support.automount"
    script = prepared(work, f"{bucket} {directory} fuse.s3mount x-systemd.automount,{reach(weed)} 0 0") + f"""
        {automount} {directory} f mount -T $T {directory} || umount -l {directory}
        umount {directory}
    """  # fmt: skip
    result = in_namespace(script)
    assert (result.returncode, result.stdout) == (0, "content"), result.stderr


def test_failures(weed: Server, work: Path) -> None:
    """A line of fstab that cannot be mounted is one line and mount(8)'s exit code, and does not keep others from
    being mounted.
    """
    bucket = weed.make_bucket()
    for name in "abc":
        (work / name).mkdir()
    script = prepared(
        work,
        f"no-such-bucket {work}/a fuse.s3mount {reach(weed)} 0 0",
        f"{bucket} {work}/b fuse.s3mount cach=/x,{reach(weed)} 0 0",
        f"{bucket} {work}/c fuse.s3mount {reach(weed)} 0 0",
    ) + f"""
        mount -a -T $T || echo all $?
        mounts | wc -l
        mount -T $T {work}/a || echo a $?
        mount -T $T {work}/b || echo b $?
        mount -f -T $T {work}/b || echo checked $?
        umount {work}/c
    """  # fmt: skip
    result = in_namespace(script)
    assert result.stdout.splitlines() == ["all 64", "1", "a 32", "b 1", "checked 1"], result.stderr
    lines = result.stderr.splitlines()
    assert sum("-o cach=/x: there is no such option; did you mean cache?" in line for line in lines) == 3
    assert sum("no-such-bucket" in line for line in lines) == 2
    assert len(lines) == 5
