"""Frames over a local stream socket, for asyncio; the wire format is `frames`.

One request, one reply. A channel that was interrupted between them is useless: its owner closes it.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

from t1_sandbox.frames import PREFIX, Frame, Header, check_lengths, decode_header, encode

_RECEIVE_BYTES = 1 << 20


class Channel:
    """The client's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._busy = False
        self._closed = False

    async def request(
        self,
        header: Header,
        payload: bytes = b"",
        *,
        descriptors: Sequence[int] = (),
        max_reply_bytes: int = 0,
    ) -> Frame:
        """Sends a request and returns its reply.

        Args:
            header: What is asked.
            payload: Raw bytes.
            descriptors: File descriptors to pass along.
            max_reply_bytes: Bound on the reply's payload.

        Raises:
            ConnectionError: Either side has closed.
            ValueError: The reply is malformed or too large.
        """
        if self._closed:
            raise ConnectionResetError("the connection was closed here")
        self._busy = True
        try:
            return await self._exchange(header, payload, descriptors, max_reply_bytes)
        finally:
            self._busy = False
            if self._closed:
                self._socket.close()

    async def _exchange(
        self, header: Header, payload: bytes, descriptors: Sequence[int], max_reply_bytes: int
    ) -> Frame:
        loop = asyncio.get_running_loop()
        start = encode(header, len(payload))
        if descriptors:
            # an idle socket always has room for the 8 bytes the descriptors travel with
            socket.send_fds(self._socket, [start[: PREFIX.size]], list(descriptors))
            start = start[PREFIX.size :]
        await loop.sock_sendall(self._socket, start)
        if payload:
            await loop.sock_sendall(self._socket, payload)
        prefix = await self._receive(PREFIX.size)
        header_bytes, payload_bytes = PREFIX.unpack(prefix)
        check_lengths(header_bytes, payload_bytes, max_reply_bytes)
        body = await self._receive(header_bytes + payload_bytes)
        return Frame(decode_header(body[:header_bytes]), body[header_bytes:], [])

    async def _receive(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        parts: list[bytes] = []
        while count:
            part = await loop.sock_recv(self._socket, min(count, _RECEIVE_BYTES))
            if not part:
                raise ConnectionResetError("the sandbox closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Closes the connection; a request that waits for its reply ends with an error."""
        self._closed = True
        if self._busy:
            # closing it under a waiting reader would leave the reader waiting for ever
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        else:
            self._socket.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """Returns a channel and the socket its peer is to be given."""
    own, peer = socket.socketpair()
    own.setblocking(False)
    return Channel(own), peer
