"""What a user may write for BUCKET."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3mount.core.location import Location, parse_location
from s3mount.errors import BadOption

_AP = "arn:aws:s3:us-east-1:123456789012:accesspoint"


@pytest.mark.parametrize(
    ("text", "prefix", "location"),
    [
        ("bucket", None, Location("bucket")),
        ("bucket", "", Location("bucket")),
        ("bucket", "a/b/", Location("bucket", "a/b/")),
        ("s3://bucket", None, Location("bucket")),
        ("s3://bucket/", None, Location("bucket")),
        ("s3://bucket/a/", None, Location("bucket", "a/")),
        ("s3://bucket/a//b/", None, Location("bucket", "a//b/")),
        ("s3://bucket//", None, Location("bucket", "/")),
        ("s3://bucket", "a/", Location("bucket", "a/")),
        ("s3://bucket/", "a/", Location("bucket", "a/")),
        ("s3://bucket/a/", "", Location("bucket", "a/")),
        ("my.old_Bucket", None, Location("my.old_Bucket")),
        ("bucket--use1-az4--x-s3", None, Location("bucket--use1-az4--x-s3")),
        ("bucket", "../\U0001f600/", Location("bucket", "../\U0001f600/")),
        ("bucket", "p" * 1023 + "/", Location("bucket", "p" * 1023 + "/")),
        ("abc", None, Location("abc")),
        ("x" * 255, None, Location("x" * 255)),
    ],
)
def test_a_bucket_and_a_prefix(text: str, prefix: str | None, location: Location) -> None:
    """A name or an s3:// address, with the prefix in either place."""
    assert parse_location(text, prefix) == location


@pytest.mark.parametrize(
    "arn",
    [
        f"{_AP}/data",
        f"{_AP}:data",
        "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint/data",
        "arn:aws-us-gov:s3:us-gov-west-1:123456789012:accesspoint/data-1",
        "arn:aws:s3-object-lambda:eu-west-1:123456789012:accesspoint/data",
        "arn:aws:s3-outposts:us-west-2:123456789012:outpost/op-01ac/accesspoint/data",
        "arn:aws:s3-outposts:us-west-2:123456789012:outpost:op-01ac:accesspoint:data",
    ],
)
def test_an_access_point_arn_is_a_bucket(arn: str) -> None:
    """An access point of one region is used as S3 takes it, with a prefix from its own option."""
    assert parse_location(arn, "a/") == Location(arn, "a/")


@pytest.mark.parametrize(
    "arn",
    [
        "arn:",
        "arn:aws:s3:::bucket",
        "arn:aws:s3:::bucket/*",
        "arn:aws:s3:us-east-1::accesspoint/data",
        "arn:aws:s3:us-east-1:12345678901:accesspoint/data",
        "arn:aws:s3:us-east-1:\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669\u0660\u0661\u0662:accesspoint/data",
        "arn:aws:sqs:us-east-1:123456789012:accesspoint/data",
        f"{_AP}",
        f"{_AP}/",
        f"{_AP}/data/object/key",
        f"{_AP}/Data",
        f"{_AP}/data\n",
        f" {_AP}/data",
    ],
)
def test_an_arn_we_cannot_parse_is_refused(arn: str) -> None:
    """Bucket ARNs, broken ARNs and other services' are refused, and the message says what is accepted."""
    with pytest.raises(BadOption, match="access point ARN"):
        parse_location(arn)


@pytest.mark.parametrize("name", ["mfzwi23gnjvgw.mrap", "data"])
def test_a_multi_region_access_point_is_named_as_such(name: str) -> None:
    """The ARN of a multi-region access point, which has no region, gets the message about those."""
    with pytest.raises(BadOption, match="multi-region access points are not supported"):
        parse_location(f"arn:aws:s3::123456789012:accesspoint/{name}")


def test_an_arn_in_an_address_is_refused() -> None:
    """An ARN holds slashes of its own, so it cannot stand in an s3:// address."""
    with pytest.raises(BadOption, match="an ARN cannot stand in an s3:// address"):
        parse_location(f"s3://{_AP}/data")


@pytest.mark.parametrize(
    "text",
    [
        "", "ab", "s3://", "s3:///a/", "s3://ab/", "-bucket", "bucket-", ".bucket", "bucket/a/", "buck et", "bucket\n",
        "bucket\0", "b\u00fccket", "S3://bucket/", "https://bucket.s3.amazonaws.com/", "x" * 256, "/bucket", "a:b",
    ],
)  # fmt: skip
def test_a_bad_bucket_is_refused(text: str) -> None:
    """What cannot be a bucket name is refused before any request, with the forms that are accepted."""
    with pytest.raises(BadOption, match="is not a bucket name; give a name, s3://NAME/PREFIX/, or an access point ARN"):
        parse_location(text)


@pytest.mark.parametrize(("text", "prefix"), [("bucket", "a"), ("s3://bucket/a", None), ("s3://bucket/a/b", "")])
def test_a_prefix_without_slash_is_refused_with_the_right_one(text: str, prefix: str | None) -> None:
    """A prefix that ends inside a name is refused, and the message has the prefix that was meant."""
    with pytest.raises(BadOption, match=r"must end with '/'; did you mean 'a(/b)?/'\?"):
        parse_location(text, prefix)


def test_two_prefixes_are_refused() -> None:
    """A prefix in the address and another as an option: nobody can know which is meant."""
    with pytest.raises(BadOption, match="two prefixes were given: 'a/' in the address and --prefix 'b/'"):
        parse_location("s3://bucket/a/", "b/")


@pytest.mark.parametrize("prefix", ["a\0b/", "p" * 1024 + "/", "\u4e2d" * 342 + "/", "\udcff/"])
def test_a_prefix_no_key_can_have_is_refused(prefix: str) -> None:
    """A NUL, more than 1,024 bytes of UTF-8, or bytes that are not UTF-8 at all."""
    with pytest.raises(BadOption, match="the prefix"):
        parse_location("bucket", prefix)


@given(st.text(max_size=60), st.none() | st.text(max_size=20))
def test_any_text_is_a_location_or_a_bad_option(text: str, prefix: str | None) -> None:
    """No text fails in another way; a refusal is one printable line, a location keeps its invariant."""
    for address in (text, f"s3://{text}", f"s3://bucket/{text}", f"arn:{text}"):
        try:
            location = parse_location(address, prefix)
        except BadOption as error:
            refusal = str(error)
        else:
            refusal = ""
            assert location.prefix == "" or location.prefix.endswith("/")
            assert location.bucket in address
            assert "/" not in location.bucket or location.bucket.startswith("arn:")
            location.prefix.encode()
        assert refusal.isprintable()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_the_label_cannot_split_mount_options(prefix: str) -> None:
    """What `df` shows starts with the bucket and has no blank, comma or backslash, whatever the prefix."""
    label = parse_location("bucket", prefix + "/").label
    assert label.startswith("bucket/")
    assert not any(each.isspace() or each in ",\\" for each in label)


def test_the_label_of_a_whole_bucket_is_its_name() -> None:
    """Without a prefix the label is the bucket alone."""
    assert parse_location("bucket").label == "bucket"
    assert parse_location("s3://bucket/a b/").label == "bucket/a_b/"


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("use1-az4", "us-east-1"),
        ("apne1-az4", "ap-northeast-1"),
        ("aps1-az1", "ap-south-1"),
        ("euc1-az2", "eu-central-1"),
        ("usw2-lax1-az1", "us-west-2"),
        ("usgw1-az1", None),
    ],
)
def test_the_zone_of_a_directory_bucket_tells_its_region(zone: str, region: str | None) -> None:
    """Where it has a form that is known; any other bucket has none."""
    location = parse_location(f"my-data--{zone}--x-s3")
    assert (location.is_directory_bucket, location.region) == (True, region)
    assert (parse_location("my-data").is_directory_bucket, parse_location("my-data--use1-az4").region) == (False, None)
