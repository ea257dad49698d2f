# SPDX-License-Identifier: MIT
"""``ipc.wire``: whatever bytes the other side sends, a message or ``WireError`` comes out, on time, and no leak."""

from __future__ import annotations

import array
import contextlib
import json
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.ipc import wire

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
KINDS = st.sampled_from([str, int, float, bool, list, dict])


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def frame(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(), VALUES))
def test_what_is_sent_arrives(message):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(theirs, message)
        assert wire.receive(ours, 5) == (message, [])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_wire_error(data):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            message, fds = wire.receive(ours, 5)
        except wire.WireError:
            return
        assert isinstance(message, dict)
        assert fds == []


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100) | st.text(max_size=100).map(str.encode) | VALUES.map(lambda v: json.dumps(v).encode()))
def test_decode_gives_an_object_or_a_wire_error(body):
    try:
        message = wire.decode(body)
    except wire.WireError:
        return
    assert isinstance(message, dict)
    assert json.loads(json.dumps(message, allow_nan=False)) == message


@pytest.mark.parametrize("body", [
    b'{"a": NaN}', b'{"a": Infinity}', b'{"a": [-Infinity]}', b'{"a": 1e999}', b'{"a": {"b": -1e400}}',
    b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe{", b"", b"[]", b"1", b"null", b'"x"',
    b'{"a": 1} {"a": 2}', b"{'a': 1}", b'{"a": 0x10}',
], ids=lambda body: body[:16].decode(errors="replace") or "empty")
def test_refused_bodies(body):
    with pytest.raises(wire.WireError):
        wire.decode(body)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_a_number_is_never_sent(pair, value):
    ours, theirs = pair
    with pytest.raises(ValueError, match="not JSON compliant"):
        wire.send(theirs, {"seconds": value})
    wire.send(theirs, {"next": 1})
    assert wire.receive(ours, 5)[0] == {"next": 1}, "nothing of the refused message was sent"


def test_a_size_beyond_the_limit_is_refused_before_it_is_read(pair):
    ours, theirs = pair
    theirs.sendall(struct.pack("!I", wire.MAX_MESSAGE + 1))
    with pytest.raises(wire.WireError, match="announced a message of 8388609 bytes"):
        wire.receive(ours, 5)
    with pytest.raises(wire.WireError, match="exceeds the limit"):
        wire.send(ours, {"x": "x" * wire.MAX_MESSAGE})


def test_a_message_of_exactly_the_limit_goes_through(pair):
    ours, theirs = pair
    text = "x" * (wire.MAX_MESSAGE - len('{"x":""}'))
    sender = threading.Thread(target=wire.send, args=(theirs, {"x": text}))
    sender.start()
    message, _ = wire.receive(ours, 30)
    sender.join()
    assert message == {"x": text}


@pytest.mark.parametrize("count", [1, wire.MAX_FDS])
def test_descriptors_travel_with_their_message(pair, count):
    ours, theirs = pair
    pipes = [os.pipe() for _ in range(count)]
    wire.send(theirs, {"n": count}, [write for _, write in pipes])
    message, received = wire.receive(ours, 5)
    assert (message, len(received)) == ({"n": count}, count)
    for index, ((read, write), fd) in enumerate(zip(pipes, received, strict=True)):
        os.write(fd, b"%d" % index)
        assert os.read(read, 9) == b"%d" % index, "the same pipe, in the same order"
        for descriptor in (read, write, fd):
            os.close(descriptor)


def send_raw(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


@pytest.mark.parametrize("data", [
    frame(b"not json"), frame(b"[]"), b"\xff\xff\xff\xff", b"\x00\x00", frame(b'{"a":1}')[:-1],
], ids=["garbage", "list", "oversized", "half a header", "half a body"])
def test_descriptors_of_a_message_that_is_none_are_closed(pair, data):
    ours, theirs = pair
    before = descriptors()
    send_raw(theirs, data, [0, 1, 2])
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(wire.WireError):
        wire.receive(ours, 5)
    assert descriptors() == before


def test_descriptors_of_a_message_that_never_ends_are_closed(pair):
    ours, theirs = pair
    before = descriptors()
    send_raw(theirs, frame(b'{"a":1}')[:6], [0])
    with pytest.raises(wire.WireTimeout):
        wire.receive(ours, 0.2)
    assert descriptors() == before


def test_a_flood_of_descriptors_is_refused(pair):
    ours, theirs = pair
    before = descriptors()
    for byte in frame(b'{"a": 1}'):
        send_raw(theirs, bytes([byte]), [0, 1, 2, 0, 1, 2, 0, 1])
    with pytest.raises(wire.WireError, match="descriptors"):
        wire.receive(ours, 5)
    assert descriptors() == before


def test_a_silent_peer_times_out(pair):
    ours, _theirs = pair
    started = time.monotonic()
    with pytest.raises(wire.WireTimeout):
        wire.receive(ours, 0.2)
    assert 0.15 < time.monotonic() - started < 2


def test_a_peer_that_trickles_bytes_does_not_extend_the_deadline(pair):
    ours, theirs = pair
    stop = threading.Event()

    def trickle() -> None:
        for byte in frame(b'{"a": "' + b"x" * 1000 + b'"}'):
            if stop.wait(0.02):
                return
            theirs.send(bytes([byte]))

    sender = threading.Thread(target=trickle)
    sender.start()
    started = time.monotonic()
    try:
        with pytest.raises(wire.WireTimeout):
            wire.receive(ours, 0.3)
        assert time.monotonic() - started < 2
    finally:
        stop.set()
        sender.join()


def test_a_peer_that_never_reads_does_not_hold_the_sender(pair):
    ours, _theirs = pair
    started = time.monotonic()
    with pytest.raises(wire.WireTimeout, match="does not read"):
        wire.send(ours, {"x": "x" * (4 << 20)}, timeout=0.3)
    assert time.monotonic() - started < 5


def test_an_old_deadline_does_not_reach_the_next_message(pair):
    ours, theirs = pair
    wire.send(theirs, {"a": 1})
    wire.receive(ours, 0.05)
    time.sleep(0.1)
    received: list[dict[str, object]] = []
    reader = threading.Thread(target=lambda: received.append(wire.receive(theirs, 10)[0]), daemon=True)
    reader.start()
    wire.send(ours, {"x": "x" * (4 << 20)})
    reader.join(20)
    assert [len(str(message["x"])) for message in received] == [4 << 20]


def test_a_peer_that_hung_up(pair):
    ours, theirs = pair
    theirs.close()
    with pytest.raises(wire.WireError, match="closed the connection"):
        wire.receive(ours, 5)
    with pytest.raises(wire.WireError, match="the other side is gone"):
        wire.send(ours, {"a": 1})


def test_our_own_end_closed(pair):
    ours, _theirs = pair
    ours.close()
    with pytest.raises(wire.WireError):
        wire.receive(ours, 1)
    with pytest.raises(wire.WireError):
        wire.send(ours, {"a": 1})


@given(st.dictionaries(st.sampled_from(["a", "b"]), VALUES), KINDS)
def test_a_field_has_the_kind_asked_for(message, kind):
    try:
        value = wire.field(message, "a", kind)
    except wire.WireError:
        return
    assert type(value) is kind
    assert value == message["a"]


@pytest.mark.parametrize(("value", "kind"), [
    (True, int), (1, bool), (1.0, int), ("1", int), (None, str), (math.nan, float), (math.inf, float), (10**400, float),
    (-(10**400), float),
])
def test_refused_fields(value, kind):
    with pytest.raises(wire.WireError, match="field 'x'"):
        wire.field({"x": value}, "x", kind)


def test_an_integer_serves_as_a_float_and_a_default_for_nothing():
    assert wire.field({"x": 2}, "x", float) == 2.0
    assert type(wire.field({"x": 2}, "x", float)) is float
    assert wire.field({}, "x", str, "none") == "none"
    with pytest.raises(wire.WireError, match="field 'x'"):
        wire.field({}, "x", str)


def test_a_peer_that_leaves_right_after_reading_is_no_error():
    """The judge hangs up as soon as it has the last answer: the worker must not stumble over that."""
    for _ in range(50):
        ours, theirs = socket.socketpair()

        def read_and_leave(sock: socket.socket = ours) -> None:
            wire.receive(sock, 5)
            sock.close()

        reader = threading.Thread(target=read_and_leave)
        reader.start()
        wire.send(theirs, {"a": 1})
        reader.join()
        theirs.close()


# Answers -------------------------------------------------------------------------------------------------------------

@pytest.fixture
def pipe() -> Iterator[tuple[int, wire.AnswerPipe]]:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    yield ours, wire.AnswerPipe(theirs)
    for descriptor in (ours, theirs):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_an_answer_arrives(pipe):
    ours, theirs = pipe
    for message in ({}, {"a": [1, {"b": None}], "c": "x" * 60_000}):
        wire.answer(theirs, message)
        assert wire.receive_answer(ours, 5) == message


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | VALUES.map(lambda value: frame(json.dumps(value).encode())))
def test_any_bytes_are_an_answer_or_a_wire_error(data):
    ours, theirs = os.pipe()
    os.write(theirs, data)
    os.close(theirs)
    try:
        assert isinstance(wire.receive_answer(ours, 5), dict)
    except wire.WireError:
        pass
    finally:
        os.close(ours)


@pytest.mark.parametrize(("body", "words"), [
    (b'{"a":' * 17 + b"1" + b"}" * 17, "more than 16 deep"),
    (b'{"a":' + b"[" * 600 + b"]" * 600 + b"}", "more than 16"),
    (b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "not a JSON message"),
    (b'{"a":"' + b"x" * (64 << 10) + b'"}', "announced an answer of 65544 bytes"), (b"[]", "is a JSON object"),
], ids=["deep objects", "deep lists", "deepest lists", "large", "list"])
def test_refused_answers(pipe, body, words):
    ours, theirs = pipe
    sender = threading.Thread(target=lambda: os.write(theirs.descriptor, frame(body)), daemon=True)
    sender.start()
    with pytest.raises(wire.WireError, match=words):
        wire.receive_answer(ours, 5)


def test_an_answer_of_the_greatest_depth(pipe):
    ours, theirs = pipe
    wire.answer(theirs, json.loads('{"a":' * 16 + "1" + "}" * 16))
    assert wire.receive_answer(ours, 5)


def test_of_many_values_none_is_made(pipe):
    ours, theirs = pipe
    body = b'{"a":[' + b"[]," * 300_000 + b"[]]}"
    sender = threading.Thread(target=theirs.sendall, args=(frame(body),))
    sender.start()
    with pytest.raises(wire.WireError, match="more than 200000 values"):
        wire.receive_answer(ours, 20, wire.MAX_COUNTED)
    sender.join()


def test_an_answer_is_awaited_for_so_long_and_not_beyond_the_end(pipe):
    ours, theirs = pipe
    started = time.monotonic()
    with pytest.raises(wire.WireTimeout):
        wire.receive_answer(ours, 0.2)
    assert 0.15 < time.monotonic() - started < 5
    os.close(theirs.descriptor)
    with pytest.raises(wire.WireClosed):
        wire.receive_answer(ours, 5)
