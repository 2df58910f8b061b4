"""A clock that only moves when told to: sleeping costs nothing, and every number is exact."""

import asyncio


class FakeClock:
    """A `hotloop.loop.clock.Clock` whose time is a number."""

    def __init__(self, look_ns: int = 0) -> None:
        """look_ns: what every look at it takes."""
        self.look_ns = look_ns
        self.time_ns = 1_000
        self.cpu_ns = 0

    def now_ns(self) -> int:
        self.time_ns += self.look_ns
        return self.time_ns

    def thread_cpu_ns(self) -> int:
        return self.cpu_ns

    def process_cpu_ns(self) -> int:
        return self.cpu_ns

    def wait_ns(self, duration_ns: float) -> int:
        passed = max(0, round(duration_ns))
        self.time_ns += passed
        return passed

    def burn_ns(
        self,
        duration_ns: float,
        *,
        releases_lock: bool = False,
        moved_bytes: float = 0,
        on_cpu: bool = False,
    ) -> int:
        passed = self.wait_ns(duration_ns)
        self.cpu_ns += passed
        return passed

    def sleep_ns(self, duration_ns: float) -> None:
        self.wait_ns(duration_ns + 60_000)  # as late as a sleeper wakes

    async def wait_async_ns(self, duration_ns: float) -> int:
        passed = self.wait_ns(duration_ns)
        await asyncio.sleep(0)
        return passed
