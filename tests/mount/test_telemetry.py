"""What `s3mountctl` and Prometheus are told of real mounts."""

import contextlib
import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from s3mount.daemon.exits import ExitCode
from s3mount.units import KIB, MIB
from tests.support.content import make_content
from tests.support.ctl import COMMAND, result_of, run_ctl
from tests.support.metrics_doc import documented_paths, paths_of
from tests.support.mounts import Mount, aws_environment, mounted, run_command
from tests.support.processes import free_port, wait_until
from tests.support.proxy import Fault, error_answer, proxy
from tests.support.servers import Server
from tests.support.takeover import Gate, wait_for_takeover

pytestmark = [pytest.mark.mount, pytest.mark.server]

EVIL = "evil\x1b[31m\nred"
SIZE = 300 * KIB


@pytest.fixture(scope="module")
def bucket(weed: Server) -> str:
    name = weed.make_bucket()
    for key, size in (("a", SIZE), ("b", SIZE), ("large", 20 * MIB)):
        weed.client.put_object(Bucket=name, Key=key, Body=make_content(key, size))
    return name


def stats_of(mount: Mount) -> dict[str, Any]:
    ran = run_ctl("stats", mount.path, "--json")
    assert ran.returncode == 0, ran.stderr
    return result_of(ran)


def stats_at_rest(mount: Mount) -> dict[str, Any]:
    """When nothing is open: the kernel tells of the last close without waiting for an answer."""

    def look() -> dict[str, Any]:
        found = stats_of(mount)
        return {} if found["readers"]["open_files"] else found

    return wait_until(look, 60, "the last close")


def cat(*paths: Path) -> None:
    subprocess.run(["cat", *map(str, paths)], stdout=subprocess.DEVNULL, check=True)


def scrape(url: str) -> dict[str, float]:
    """Samples by name and labels."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_statistics(weed: Server, bucket: str, work: Path) -> None:
    """stats --json has the documented names, and counts bytes, opens and requests of a known job exactly."""
    with mounted(bucket, work, "--cache", str(work / "cache"), url=weed.url) as mount:
        cat(mount.path / "a", mount.path / "b")
        found = stats_at_rest(mount)
        assert paths_of(found) == documented_paths()
        assert found["schema"] == 1
        assert found["bytes"]["to_readers"] == found["bytes"]["from_s3"] == 2 * SIZE
        assert found["bytes"]["from_s3_per_byte_to_readers"] == 1.0
        assert found["requests"]["counts"]["get"] == 2
        assert (found["caches"]["opens"], found["readers"]["open_files"]) == (2, 0)
        assert found["calls"]["open"]["count"] == 2 == sum(found["calls"]["open"]["buckets"])
        assert found["requests"]["latencies"]["GetObject"]["count"] == 2
        assert found["mount"]["pid"] == mount.daemon_pid
        assert 0 < found["readers"]["waiting_seconds"] <= found["readers"]["reader_seconds"]
        first = run_ctl("stats", mount.path).stdout.splitlines()[0]
        assert re.fullmatch(r"readers +\d+% of .+ spent waiting for S3: \d+% .+", first)
        assert mount.stop() == 0
        assert mount.warnings() == []


def test_the_page_cache_shows_as_opens_without_reads(weed: Server, bucket: str, work: Path) -> None:
    """A file that the kernel has is opened without a read, and that is counted; one pass of four must show it."""
    with mounted(bucket, work, url=weed.url) as mount:
        for _ in range(5):
            cat(mount.path / "a")
        caches = stats_of(mount)["caches"]
        assert caches["opens"] == 5
        assert 1 <= caches["opens_without_reads"] <= 4


def test_waits_are_told_of_each_job(weed: Server, bucket: str, work: Path) -> None:
    """Each process group has its name and what it waited; the jobs' times add up to the readers'."""
    with mounted(bucket, work, url=weed.url) as mount:
        jobs = []
        for name in ("a", "large"):
            command = ["dd", f"if={mount.path / name}", "of=/dev/null", "bs=64k"]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as job:
                assert job.wait() == 0
            jobs.append(job.pid)
        readers = stats_at_rest(mount)["readers"]
        groups = {each["group"]: each for each in readers["groups"]}
        for pid in jobs:
            assert groups[pid]["name"] == "dd"
            assert 0 < groups[pid]["waiting_seconds"] <= groups[pid]["reader_seconds"]
            waits = dict(groups[pid]["wait_seconds"])
            total = waits.pop("total")
            assert sum(waits.values()) == pytest.approx(total)
            assert waits["first_byte"] + waits["transfer"] > 0  # which of the two is an estimate, their sum is exact
        assert sum(each["reader_seconds"] for each in groups.values()) == pytest.approx(readers["reader_seconds"])


def test_a_slow_request_is_named(weed: Server, bucket: str, work: Path) -> None:
    """A GET that S3 does not answer, and the call that waits for it, are shown with their key and age."""
    gate = Gate()
    with proxy(weed.url) as front, mounted(bucket, work, url=front.url) as mount:
        front.decide = gate
        reader = subprocess.Popen(["cat", mount.path / "large"], stdout=subprocess.DEVNULL)
        assert gate.has_arrived.wait(30)
        flight = stats_of(mount)["in_flight"]
        wait_until(lambda: "slow " in run_ctl("stats", mount.path).stdout, 30, "a second passing")
        shown = run_ctl("stats", mount.path).stdout
        gate.may_pass.set()
        assert reader.wait(60) == 0
    assert any((each["operation"], each["key"]) == ("GetObject", "large") for each in flight["requests"])
    assert all(each["age_seconds"] >= 0 for each in flight["requests"])
    assert re.search(r"^slow +GetObject in flight for .+: large$", shown, re.MULTILINE)
    assert re.search(r"^slow +(open|read) waits for .+: large$", shown, re.MULTILINE)


def test_top(weed: Server, bucket: str, work: Path) -> None:
    """top names the files with most bytes and who opened them; what a terminal would obey in a key is escaped."""
    weed.client.put_object(Bucket=bucket, Key=EVIL, Body=b"x" * 1000)
    with mounted(bucket, work, url=weed.url) as mount:
        cat(mount.path / "large", mount.path / EVIL)
        with (mount.path / "a").open("rb") as file:
            assert len(file.read(1000)) == 1000
            ran = run_ctl("top", mount.path, "--json")
            found = result_of(ran)
            shown = run_ctl("top", mount.path).stdout
    assert "\x1b" not in ran.stdout + shown
    files = {each["key"]: each for each in found["files"]}
    assert next(iter(files)) == "large"
    assert (files["large"]["bytes"], files["large"]["opens"], files["large"]["open"]) == (20 * MIB, 1, 0)
    assert (files[EVIL]["bytes"], files["a"]["open"]) == (1000, 1)
    assert found["openers"][0]["bytes"] == 20 * MIB + 1000
    assert "pytest" in found["openers"][1]["name"] or "python" in found["openers"][1]["name"]
    assert re.search(r"^ *20 MiB +1 +0 +large$", shown, re.MULTILINE)
    assert re.search(r"^ *1000 B +1 +0 +evil\\x1b\[31m\\nred$", shown, re.MULTILINE)


def test_what_is_written(weed: Server, work: Path) -> None:
    """Of a mount that writes the bytes from writers and to S3, the uploads and the requests are told, and who wrote."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, "--rw", url=weed.url) as mount:
        (mount.path / "new").write_bytes(b"x" * 5000)
        found = stats_of(mount)
        top = result_of(run_ctl("top", mount.path, "--json"))
        assert mount.stop() == 0
    assert (found["bytes"]["from_writers"], found["bytes"]["to_s3"]) == (5000, 5000)
    assert (found["requests"]["counts"]["put"], found["uploads"]["sent"]["puts"]) == (1, 1)
    assert found["requests"]["latencies"]["PutObject"]["count"] == 1
    assert found["caches"]["opens"] == 0
    assert found["uploads"]["room"]["waiting"] == 0
    assert [(each["key"], each["bytes"]) for each in top["files"]] == [("new", 5000)]


def test_every_request_is_timed(weed: Server, work: Path) -> None:
    """Requests of one operation are timed together, whether a reader or a writer asked: as many as are counted."""
    bucket = weed.make_bucket()
    weed.client.put_object(Bucket=bucket, Key="a", Body=b"x" * 5000)
    with mounted(bucket, work, "--rw", "--posix-metadata", url=weed.url) as mount:
        (mount.path / "a").read_bytes()
        (mount.path / "a").read_bytes()
        with (mount.path / "a").open("r+b") as file:
            file.write(b"y")
        found = stats_of(mount)["requests"]
    latencies = found["latencies"]
    assert latencies["HeadObject"]["count"] == sum(latencies["HeadObject"]["buckets"]) > found["counts"]["head"] > 0
    assert sum(each["count"] for each in latencies.values()) == sum(found["counts"].values())


def test_watching(weed: Server, bucket: str, work: Path) -> None:
    """stats --watch draws again and again on a terminal, over a change of daemons, and ends at Ctrl-C with 0."""
    with mounted(bucket, work, url=weed.url) as mount:
        reading, terminal = pty.openpty()
        command = [*COMMAND, "stats", "--watch", "--interval", "0.1", str(mount.path)]
        env = aws_environment(TERM="xterm", COLUMNS="100", LINES="40")
        with subprocess.Popen(command, stdout=terminal, stderr=subprocess.PIPE, env=env) as process:
            os.close(terminal)
            screens = shown_on(reading)
            text = ""
            while text.count("readers ") < 3:
                text += next(screens)
            os.kill(mount.daemon_pid, signal.SIGKILL)
            wait_for_takeover(mount)
            seen = text.count("readers ")
            while text.count("readers ") < seen + 3:
                text += next(screens)
            process.send_signal(signal.SIGINT)
            for _ in screens:
                pass
            assert process.wait(30) == 0
        os.close(reading)


def shown_on(descriptor: int) -> Iterator[str]:
    """What comes on a terminal until its other end is closed."""
    with contextlib.suppress(OSError):
        while piece := os.read(descriptor, 65536):
            yield piece.decode(errors="replace")


def test_the_log_level(weed: Server, bucket: str, work: Path) -> None:
    """log-level shows and sets what is logged, at once and until the daemon ends."""
    with mounted(bucket, work, url=weed.url) as mount:
        assert run_ctl("log-level", mount.path).stdout == "info\n"
        assert not (mount.path / "missing").exists()
        assert run_ctl("log-level", mount.path, "debug").stdout == "debug\n"
        assert not (mount.path / "missing too").exists()
        wait_until(lambda: "'missing too'" in mount.log, 30, "the line of debugging")
        assert "'missing'" not in mount.log


def test_a_scrape_of_a_mount(weed: Server, bucket: str, work: Path) -> None:
    """Prometheus gets what stats says; when the daemon is killed the next one answers at the same address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with mounted(bucket, work, "--metrics", f"127.0.0.1:{port}", url=weed.url) as mount:
        cat(mount.path / "a")
        found = scrape(url)
        assert found["s3mount_received_bytes_total"] == found["s3mount_delivered_bytes_total"] == SIZE
        assert found["s3mount_requests_total get"] == 1
        assert found["s3mount_call_duration_seconds_count open"] == 1
        assert found["s3mount_call_duration_seconds_bucket +Inf open"] == 1
        assert found["process_open_fds"] > 0
        os.kill(mount.daemon_pid, signal.SIGKILL)
        wait_for_takeover(mount)
        wait_until(lambda: answers(url), 30, "the next daemon's metrics")
        assert scrape(url)["s3mount_received_bytes_total"] == 0
        assert mount.stop() == 0
    assert not answers(url)


def answers(url: str) -> bool:
    try:
        scrape(url)
    except (OSError, http.client.HTTPException):
        return False
    return True


def test_metrics_on_a_unix_socket(weed: Server, bucket: str, work: Path) -> None:
    """Metrics on a Unix socket come and go with the mount."""
    path = work / "metrics"
    with mounted(bucket, work, "--metrics", str(path), url=weed.url) as mount:
        with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answer:
            client.connect(str(path))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b"s3mount_uptime_seconds" in answer.read()
        assert mount.stop() == 0
        assert not path.exists()


def test_a_port_in_use_stops_the_start(weed: Server, bucket: str, work: Path) -> None:
    """A mount whose metrics have no address is not made; one line names the address, and the status is 2."""
    (work / "mnt").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        flags = ["--endpoint-url", weed.url, "--force-path-style", "--metrics", address]
        ran = run_command(bucket, str(work / "mnt"), *flags)
    assert ran.returncode == ExitCode.USAGE
    assert f"{address} cannot be served: Address already in use; choose another" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert str(work / "mnt") not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def test_a_log_of_json(weed: Server, bucket: str, work: Path) -> None:
    """With --log-json every line of all processes is one object; that of an error of S3 has its facts."""
    refused = Fault(answer=error_answer(403, "AccessDenied", "not you"))
    with proxy(weed.url) as front, mounted(bucket, work, "--log-json", url=front.url) as mount:
        front.decide = lambda request: refused if "large" in request.target and not request.is_list else None
        with pytest.raises(PermissionError):
            (mount.path / "large").read_bytes()
        wait_until(lambda: "EACCES" in mount.log, 30, "the line")
        os.kill(mount.daemon_pid, signal.SIGKILL)
        wait_for_takeover(mount)
        assert mount.stop() == 0
        lines = [json.loads(line) for line in mount.log.splitlines()]
    (refusal,) = [each for each in lines if each.get("errno") == "EACCES"]
    assert (refusal["key"], refusal["bucket"], refusal["operation"]) == ("large", bucket, "GetObject")
    assert (refusal["request_id"], refusal["level"]) == ("PROXY", "WARNING")
    assert {each["logger"] for each in lines} >= {"s3mount.fuse.boundary", "s3mount.mounter.crew"}
