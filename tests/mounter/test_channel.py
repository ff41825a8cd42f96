"""What mounter and daemon say to each other arrives whole, with its descriptors, or not at all."""

import os

from s3mount.mounter.channel import Channel


def test_a_message_and_its_descriptors() -> None:
    """Facts arrive as they were sent; descriptors are other numbers of the same files, and no child inherits them."""
    one, other = Channel.pair()
    reader, writer = os.pipe()
    one.send("mounted", [writer], offer="00ff", options=["ro"])
    message = other.receive()
    assert message is not None
    assert (message.kind, message.facts) == ("mounted", {"offer": "00ff", "options": ["ro"]})
    (fd,) = message.descriptors
    assert not os.get_inheritable(fd)
    os.write(fd, b"x")
    assert os.read(reader, 10) == b"x"
    for each in (reader, writer, fd):
        os.close(each)
    one.close()
    other.close()


def test_the_other_end_is_gone() -> None:
    """After the last message comes None; also at once, when something that was sent was never read."""
    for was_told in (False, True):
        one, other = Channel.pair()
        one.send("ready")
        if was_told:
            other.send("never read")
        one.close()
        if not was_told:
            message = other.receive()
            assert message is not None
            assert message.kind == "ready"
        assert other.receive() is None
        other.close()
