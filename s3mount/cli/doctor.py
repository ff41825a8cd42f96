"""`s3mountctl doctor BUCKET`: options of a mount that say how to reach the bucket, and a line for each finding."""

import json
import os
import sys
from typing import Any

import click
import trio

from s3mount.cli.mount import build_config
from s3mount.cli.mount import main as mount_command
from s3mount.cli.serving import fail
from s3mount.core.findings import Finding, Verdict
from s3mount.daemon.checkup import examine
from s3mount.errors import S3MountError, printable
from s3mount.logs import LogConfig, logging_to

#: Nothing is mounted: options about names, modes and logs are not for here.
_OPTIONS = (
    *("prefix", "region", "endpoint_url", "force_path_style", "profile", "no_sign_request", "requester_pays"),
    *("expected_bucket_owner", "without_listing", "ca_bundle", "allow_other", "cache", "cache_group", "memory_target"),
)
_SIGNS = {Verdict.GOOD: "ok  ", Verdict.WEAK: "weak", Verdict.BAD: "BAD "}


def _show(finding: Finding, *, as_json: bool) -> None:
    facts = {"subject": finding.subject, "verdict": finding.verdict.value, "message": finding.message}
    if as_json:
        click.echo(json.dumps({"event": "finding", **facts, "fix": finding.fix}))
        return
    click.echo(printable(f"{_SIGNS[finding.verdict]}  {finding.subject}: {finding.message}"))
    if finding.fix:
        click.echo(printable(f"      fix: {finding.fix}"))


@click.command(short_help="Examine this host and a bucket, and say what to do.")
@click.argument("bucket", metavar="BUCKET")
@click.option("--write", "may_write", is_flag=True, help="Examine writing, too: begin an upload and abort it.")
@click.option("--json", "as_json", is_flag=True, help="Print every finding as a line of JSON.")
def doctor(bucket: str, may_write: bool, as_json: bool, **flags: Any) -> None:  # noqa: FBT001
    """Examine what a mount of BUCKET would need of this host and of S3, and say what to do about it.

    Nothing is mounted, and no object is made.  The status is 1 when something is BAD.
    """
    defaults = mount_command.make_context("s3mount", [bucket, "/nonexistent"], resilient_parsing=True).params
    verdicts = []

    def tell(finding: Finding) -> None:
        verdicts.append(finding.verdict)
        _show(finding, as_json=as_json)

    try:
        config = build_config(bucket, "/nonexistent", {**defaults, **flags}, os.environ)
    except S3MountError as error:
        sys.exit(fail(error))
    with logging_to(LogConfig(None, is_off=True), is_foreground=True):
        trio.run(lambda: examine(config, tell, may_write=may_write))
    sys.exit(1 if Verdict.BAD in verdicts else 0)


doctor.params += [option for option in mount_command.params if option.name in _OPTIONS]
