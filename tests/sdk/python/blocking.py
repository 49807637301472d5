"""Drives the asynchronous client through the interface of the synchronous one.

Both clients of the SDK have the same methods but separate implementations of requests, retries and
paging. With this adaptor one test covers both: coroutines run to their end on a loop in a second
thread, asynchronous pagers become ordinary iterators, and proxies are wrapped on the way out.
"""

import asyncio
import inspect
import threading

CALL_SECONDS_MAX = 90


class Loop:
    """An event loop in its own thread."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, awaitable):
        return asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop).result(CALL_SECONDS_MAX)

    def stop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Blocking:
    """An asynchronous object whose methods wait for their result."""

    def __init__(self, loop, target):
        self._loop = loop
        self._target = target

    def __getattr__(self, name):
        value = getattr(self._target, name)
        if not callable(value):
            return _wrap(self._loop, value)

        def call(*arguments, **options):
            arguments = [_unwrap(argument) for argument in arguments]
            options = {key: _unwrap(option) for key, option in options.items()}
            return _wrap(self._loop, value(*arguments, **options))

        return call


class BlockingIterator:
    """An asynchronous iterator, pager or page as an ordinary iterator."""

    def __init__(self, loop, source):
        self._loop = loop
        self._source = source
        self._iterator = source.__aiter__()

    def __iter__(self):
        return self

    def __next__(self):
        try:
            value = self._loop.run(self._iterator.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
        return _wrap(self._loop, value)

    def by_page(self, continuation_token=None):
        return BlockingIterator(self._loop, self._source.by_page(continuation_token))

    def __getattr__(self, name):
        return getattr(self._source, name)


async def _await(awaitable):
    return await awaitable


def _wrap(loop, value):
    if inspect.isawaitable(value):
        return _wrap(loop, loop.run(value))
    if isinstance(value, tuple):
        return tuple(_wrap(loop, part) for part in value)
    if hasattr(value, "__aiter__"):
        return BlockingIterator(loop, value)
    if type(value).__module__.startswith("azure.cosmos.aio"):
        return Blocking(loop, value)
    return value


def _unwrap(value):
    return value._target if isinstance(value, Blocking) else value
