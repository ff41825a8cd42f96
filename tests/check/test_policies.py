"""The IAM policies of docs/security.md allow the calls that the program makes, and no others."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/security.md").read_text(encoding="utf-8")
POLICIES = {name: json.loads(body) for name, body in re.findall(r"```json ([a-z-]+)\n(.*?)```", TEXT, re.DOTALL)}
#: What each call of S3's API needs (Service Authorization Reference, "Actions for Amazon S3").
NEEDS = {
    "list_objects_v2": {"s3:ListBucket"},
    "head_object": {"s3:GetObject"},
    "get_object": {"s3:GetObject"},
    "put_object": {"s3:PutObject"},
    "create_multipart_upload": {"s3:PutObject"},
    "upload_part": {"s3:PutObject"},
    "upload_part_copy": {"s3:PutObject", "s3:GetObject"},
    "complete_multipart_upload": {"s3:PutObject"},
    "abort_multipart_upload": {"s3:AbortMultipartUpload"},
    "list_parts": {"s3:ListMultipartUploadParts"},
    "list_multipart_uploads": {"s3:ListBucketMultipartUploads"},
    "copy_object": {"s3:PutObject", "s3:GetObject"},
    "get_object_tagging": {"s3:GetObjectTagging", "s3:PutObjectTagging"},  # they are put on a copy, too
    "delete_object": {"s3:DeleteObject"},
    "delete_objects": {"s3:DeleteObject"},
    "generate_presigned_url": set(),  # sends nothing
    "create_session": set(),  # in directory buckets alone, where it is the one action
    "rename_object": set(),
}
READING = {"list_objects_v2", "head_object", "get_object"}
#: The CRT's client sends what it is given, and its names of requests are S3's own.
OF_BUCKET = {"s3:ListBucket", "s3:ListBucketMultipartUploads"}


def calls() -> set[str]:
    """Every method of a botocore client that store/ calls, by name or as an attribute that is handed on."""
    found = set()
    for path in (ROOT / "s3mount/store").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] in ("client", "_client"):
                found.add(node.attr)
    return found - {"meta", "make_request"}  # botocore's events; and the CRT's


def actions(policy: dict[str, object]) -> dict[str, set[str]]:
    """The resources of each action that is allowed."""
    allowed: dict[str, set[str]] = {}
    for statement in policy["Statement"]:  # type: ignore[attr-defined]
        assert statement["Effect"] == "Allow"
        listed = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        for action in listed:
            allowed.setdefault(action, set()).add(statement["Resource"])
    return allowed


def test_every_call_is_known() -> None:
    """A call of S3 that is new must be put here, with what it needs."""
    assert calls() <= NEEDS.keys() | {"_make_api_call"}
    assert {"put_object", "get_object", "delete_objects"} <= calls()


@pytest.mark.parametrize(("name", "made"), [("read-only", READING), ("read-write", NEEDS.keys())])
def test_policies_allow_what_is_asked_for(name: str, made: set[str]) -> None:
    """Each policy has the actions that its calls need, each for a bucket or for objects, and none besides."""
    allowed = actions(POLICIES[name])
    assert allowed.keys() == set().union(*(NEEDS[call] for call in made))
    for action, resources in allowed.items():
        assert all(("/" in resource) == (action not in OF_BUCKET) for resource in resources)


def test_the_policy_of_a_directory_bucket() -> None:
    """One action, for a bucket whose name ends as those of S3 Express do."""
    ((action, resources),) = actions(POLICIES["express"]).items()
    assert action == "s3express:CreateSession"
    assert all(resource.endswith("--x-s3") for resource in resources)


@pytest.mark.parametrize("name", ["read-only", "read-write", "express"])
def test_they_are_policies(name: str) -> None:
    """The language's version, and nothing that is granted to everything."""
    assert POLICIES[name]["Version"] == "2012-10-17"
    assert not [resource for found in actions(POLICIES[name]).values() for resource in found if resource == "*"]
