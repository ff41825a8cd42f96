"""Arguments that commands of s3mountctl share."""

import click

MOUNT = click.argument("mount", metavar="MOUNT", type=click.Path())
PATHS = click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
JSON = click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
