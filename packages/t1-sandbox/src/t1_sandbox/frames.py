"""Frames on a local stream socket: 8 bytes of lengths, a JSON header, raw payload.

    frame := header_bytes:u32 payload_bytes:u32 header payload        (big-endian)

File descriptors travel with the first byte. Both lengths are checked against the receiver's bounds
before anything is read. Used by the client and by the arena; knows neither.
"""

import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

PREFIX = struct.Struct("!II")
MAX_HEADER_BYTES = 64 << 20
MAX_PAYLOAD_BYTES = 1 << 30
MAX_REPORT_BYTES = 1 << 20
_MAX_DESCRIPTORS = 4
_BROKEN = "the connection ended inside a frame"

Header = dict[str, Any]


class Frame(NamedTuple):
    """One message."""

    header: Header
    payload: bytes
    descriptors: list[int]


def encode(header: Header, payload_bytes: int) -> bytes:
    """Returns everything of a frame that precedes its payload.

    Raises:
        ValueError: The header or the payload exceeds its bound.
    """
    body = json.dumps(header, separators=(",", ":")).encode()
    check_lengths(len(body), payload_bytes, MAX_PAYLOAD_BYTES)
    return PREFIX.pack(len(body), payload_bytes) + body


def check_lengths(header_bytes: int, payload_bytes: int, max_payload_bytes: int) -> None:
    """Raises ValueError unless both lengths are within bounds."""
    if header_bytes > MAX_HEADER_BYTES:
        raise ValueError(f"header of {header_bytes} bytes, expected at most {MAX_HEADER_BYTES}")
    if payload_bytes > max_payload_bytes:
        raise ValueError(f"payload of {payload_bytes} bytes, expected at most {max_payload_bytes}")


def decode_header(body: bytes) -> Header:
    """Parses a header.

    Raises:
        ValueError: It is not a JSON object.
    """
    header = json.loads(body)
    if not isinstance(header, dict):
        raise ValueError(f"header is {type(header).__name__}, expected a JSON object")  # noqa: TRY004, a malformed value
    return header


def send(sock: socket.socket, header: Header, payload: bytes = b"") -> None:
    """Sends one frame over a blocking socket."""
    sock.sendall(encode(header, len(payload)))
    if payload:
        sock.sendall(payload)


def receive(sock: socket.socket) -> Frame | None:
    """Receives one frame over a blocking socket; None when the peer has closed it.

    Raises:
        ConnectionError: The connection ended inside a frame.
        ValueError: A length is out of bounds or the header is malformed.
    """
    start, descriptors = receive_descriptors(sock, PREFIX.size)
    if not start:
        return None
    header_bytes, payload_bytes = PREFIX.unpack(
        start + _receive_exactly(sock, PREFIX.size - len(start))
    )
    check_lengths(header_bytes, payload_bytes, MAX_PAYLOAD_BYTES)
    header = decode_header(_receive_exactly(sock, header_bytes))
    return Frame(header, _receive_exactly(sock, payload_bytes), descriptors)


def receive_descriptors(sock: socket.socket, max_bytes: int) -> tuple[bytes, list[int]]:
    """Receives bytes and the descriptors that came with them, none of them inheritable."""
    data, descriptors, _, _ = socket.recv_fds(sock, max_bytes, _MAX_DESCRIPTORS)
    for descriptor in descriptors:
        # recv_fds drops its flags argument, so MSG_CMSG_CLOEXEC cannot be asked for
        os.set_inheritable(descriptor, False)
    return data, descriptors


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionError(_BROKEN)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def split(payload: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Cuts a payload into consecutive parts.

    Raises:
        ValueError: The sizes do not add up to the payload.
    """
    if sum(sizes) != len(payload) or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {list(sizes)} bytes in a payload of {len(payload)} bytes")
    parts: list[bytes] = []
    start = 0
    for size in sizes:
        parts.append(payload[start : start + size])
        start += size
    return parts
