"""A TCP proxy on loopback that can delay what passes through it, or cut connections without anybody being told."""

import asyncio
import contextlib
import socket
import threading
from typing import Self

CHUNK = 1 << 16


class Proxy:
    """Forwards its own `port` to `target`; runs in a thread of its own."""

    def __init__(self, target: int):
        self.target = target
        self.delay_s = 0.0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._cut = asyncio.Event()
        self._never = asyncio.Event()  # what a cut connection waits for
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Lets nothing through the connections that there are, in either direction, and does not close them.

        Connections that are made from here on work: the way is free again, but nobody is told that it was not.
        """
        self._loop.call_soon_threadsafe(self._renew_cut)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _renew_cut(self) -> None:
        self._cut.set()
        self._cut = asyncio.Event()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, sock=self._listener))
        self._loop.run_forever()
        server.close()
        while tasks := asyncio.all_tasks(self._loop):  # again for connections that came in meanwhile
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.target)
            writers.append(other_writer)
            self.connections += 1
            cut = self._cut
            pipes = {
                asyncio.create_task(self._pipe(reader, other_writer, cut)),
                asyncio.create_task(self._pipe(other_reader, writer, cut)),
            }
            # Either end closes the other; after a cut neither of them hears of it.
            _, pending = await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
            for pipe in pending:
                pipe.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # nobody listens behind it, or it is over
        finally:
            for each in writers:
                each.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if cut.is_set():
                    await self._never.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        if cut.is_set():
            await self._never.wait()  # not even the end of a connection gets through
