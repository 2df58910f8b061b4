"""A test as one side of a comparison: pytest runs it here, with a `benchmark` fixture of hotloop's.

The fixture has the calls of pytest-benchmark's. The test runs twice in one session: first with a
single call of the benchmarked function, so that a test that fails is not measured; then measured,
until the comparison has what it needs.
"""

import contextlib
import copy
import importlib
import importlib.util
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hotloop.errors import nearest
from hotloop.integrations.pytest_gate import NO_SUCH_BENCHMARK

# The loop's own cost, about a microsecond an iteration, is then less than a hundredth.
_SHORTEST_ITERATION_S = 2e-4
_LONGEST_STALL_S = 1.0  # what lasts longer is long, and is not called again to make sure
_SHOWN_LINES = 8
_BENCHMARK_PLUGIN, _GATE_PLUGIN = "benchmark", "hotloop_gate"
_FOREIGN_OPTIONS = ("--benchmark-", "--hotloop-gate")
# What plugins must not do here, by their names: the options that switch it off.
_SWITCHED_OFF = {"xdist": "-n0", "timeout": "--timeout=0", "pytest_cov": "--no-cov"}
# Of the foreign options, the ones whose value may stand in the next word.
_WITH_VALUE = {
    *(f"--benchmark-{name}" for name in ("min-time", "max-time", "min-rounds", "timer", "sort")),
    *(f"--benchmark-{name}" for name in ("calibration-precision", "warmup-iterations", "save")),
    *(f"--benchmark-{name}" for name in ("compare-fail", "cprofile", "cprofile-loops", "columns")),
    *(f"--benchmark-{name}" for name in ("group-by", "name", "storage", "json", "time-unit")),
    *("--hotloop-gate", "--hotloop-gate-worse", "--hotloop-gate-budget"),
    "--hotloop-gate-cannot-say",
}


class Call:
    """The benchmarked call, as the body of a loop that counts calls."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
    ) -> None:
        self.result: Any = None
        self.is_surrounded = setup is not None or teardown is not None
        self._function, self._setup, self._teardown = function, setup, teardown
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self._prepared = False
        self._repeats = 1

    def prepare(self) -> None:
        """Run the set-up of the next call, which is not part of its time."""
        if self._setup is not None:
            made = self._setup()
            if made is not None:
                args, kwargs = made
                self._args, self._kwargs = tuple(args), dict(kwargs)
        self._prepared = True

    def finish(self) -> None:
        """Run the tear-down of the last call, which is not part of its time."""
        self._prepared = False
        if self._teardown is not None:
            self._teardown(*self._args, **self._kwargs)

    def once(self) -> None:
        """Call the function once, with its set-up and tear-down."""
        self.prepare()
        self.result = self._function(*self._args, **self._kwargs)
        self.finish()

    def body(self) -> int:
        """One iteration of the loop; returns how many calls it did."""
        if self.is_surrounded:
            if self._prepared:
                self.result = self._function(*self._args, **self._kwargs)
            else:
                self.once()
            return 1
        function, args, kwargs = self._function, self._args, self._kwargs
        for _ in range(self._repeats):
            self.result = function(*args, **kwargs)
        return self._repeats

    def lengthen(self) -> None:
        """Let an iteration hold so many calls that the loop's own cost does not matter."""
        while not self.is_surrounded and self._is_short():
            self._repeats *= 2

    def _is_short(self) -> bool:
        """Whether an iteration is: of three, as another program may hold the core during one."""
        for _ in range(3):
            begin = time.perf_counter()
            self.body()
            lasted_s = time.perf_counter() - begin
            if lasted_s < _SHORTEST_ITERATION_S:
                return True
            if lasted_s > _LONGEST_STALL_S:
                return False
        return False


class _NoStats:
    """What `benchmark.stats` is here: false, and a clear sentence where it is read."""

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: object) -> Any:
        __tracebackhide__ = True  # the line to show is the test's
        pytest.fail(
            f"benchmark.stats: there are none in a comparison, and the test reads {name!r}; read "
            "them only `if benchmark.enabled`",
            pytrace=False,
        )


class Benchmark:
    """The fixture `benchmark`: it has the calls and attributes of pytest-benchmark's.

    group, name, extra_info and params may be set and read, and change nothing. As with
    `--benchmark-disable`, `enabled` is false and `stats` is false.
    """

    def __init__(self, name: str, run: Callable[[Call], Any]) -> None:
        self.name = self.fullname = name
        self.group: str | None = None
        self.param: str | None = None
        self.params: dict[str, Any] | None = None
        self.extra_info: dict[str, Any] = {}
        self.enabled, self.disabled = False, True
        self.stats = _NoStats()
        self.was_called = False
        self._run = run

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Measure a function; returns what it returns, so it is a decorator, too."""
        __tracebackhide__ = True
        return self._measured(Call(function, args, kwargs))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,  # noqa: ARG002
        warmup_rounds: int = 0,  # noqa: ARG002
        iterations: int = 1,
    ) -> Any:
        """Measure a function; how often it runs is decided by the comparison.

        setup, teardown: called around each call; their time is left out.
        """
        __tracebackhide__ = True
        if setup is not None and iterations > 1:
            pytest.fail(
                f"benchmark.pedantic: expected iterations=1 beside a setup, got {iterations}",
                pytrace=False,
            )
        return self._measured(Call(target, args, kwargs, setup, teardown))

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.fail(
            f"benchmark.{name} does not exist in a comparison; expected benchmark(function, …) or "
            "benchmark.pedantic(function, …)",
            pytrace=False,
        )

    def _measured(self, call: Call) -> Any:
        __tracebackhide__ = True
        if self.was_called:
            pytest.fail(
                "the fixture `benchmark` was called twice; expected once, as one thing is "
                "compared with another",
                pytrace=False,
            )
        self.was_called = True
        self._run(call)
        return call.result


def run_test(test: str, measure: Callable[[Call], None]) -> str | None:
    """Run a test, `file.py::name`; returns why it could not be measured, or None.

    measure: measures the call of the second run, and returns when that is over.
    """
    file = test.partition("::")[0]
    if not Path(file).is_file():
        return f"{NO_SUCH_BENCHMARK}: {file} is no file"
    plugin = _OneTest(test, measure)
    printed = io.StringIO()
    arguments = [file, "-p", f"no:{_BENCHMARK_PLUGIN}", "-p", f"no:{_GATE_PLUGIN}"]
    # pytest would like to import the packages of plugins itself; hotloop is imported already.
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = pytest.main(arguments, plugins=[plugin])
    if plugin.problem is None and not plugin.measured:
        return f"pytest ended with {int(code)}{_last_lines(printed.getvalue())}"
    return plugin.problem


class _OneTest:
    """The plugin: it keeps one test, runs it twice, and supplies the fixture."""

    def __init__(self, test: str, measure: Callable[[Call], None]) -> None:
        self.problem: str | None = None
        self.measured = False
        self._name = test.partition("::")[2]
        self._measure = measure
        self._checked = False
        self._fixture: Benchmark | None = None

    def pytest_addhooks(self, pluginmanager: pytest.PytestPluginManager) -> None:
        # Its plugin is switched off, but a conftest.py may hold functions for its hooks.
        if importlib.util.find_spec("pytest_benchmark") is not None:
            pluginmanager.add_hookspecs(importlib.import_module("pytest_benchmark.hookspec"))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)  # pytest-cov begins in this hook
    def pytest_load_initial_conftests(
        self, early_config: pytest.Config, args: list[str]
    ) -> Iterator[None]:
        """Take out and switch off what the configuration asks for, and must not be here."""
        args[:] = _without_foreign(args)
        for plugin, switch in _SWITCHED_OFF.items():
            if early_config.pluginmanager.hasplugin(plugin):
                args.append(switch)
        early_config.known_args_namespace.no_cov = True  # read before its switch takes effect
        yield

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "benchmark: settings of pytest-benchmark")
        # The test was named; what a configuration selects does not matter.
        config.option.markexpr = config.option.keyword = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        found = {item.nodeid.partition("::")[2]: item for item in items}
        item = found.get(self._name)
        if item is None:
            cases = [name for name in found if name.startswith(f"{self._name}[")]
            self._fail(
                f"{NO_SUCH_BENCHMARK}: {self._name} has several cases: "
                f"name one of {', '.join(map(repr, cases))}"
                if cases
                else f"{NO_SUCH_BENCHMARK} {self._name!r}{nearest(self._name, found)}"
            )
        elif "benchmark" not in getattr(item, "fixturenames", ()):
            self._fail(
                f"{NO_SUCH_BENCHMARK}: {self._name} does not use the fixture `benchmark`; expected "
                "a test that does"
            )
        elif config.pluginmanager.hasplugin("timeout"):
            item.add_marker(pytest.mark.timeout(0), append=False)  # a comparison has its own budget
        items[:] = [] if item is None or self.problem else [item, _again(item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """Leave the second run out if the first has failed."""
        return True if self.problem else None

    @pytest.fixture
    def benchmark(self, request: pytest.FixtureRequest) -> Benchmark:
        """Measure a function, as pytest-benchmark's fixture of this name."""
        self._fixture = Benchmark(request.node.name, self._run)
        return self._fixture

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._fail(f"the test failed: {_failure(report)}")
        elif report.skipped:
            why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
            self._fail(f"the test was skipped: {why}")
        elif report.when == "teardown":
            if self._fixture is None or not self._fixture.was_called:
                self._fail(
                    f"{self._name} did not call hotloop's fixture `benchmark`; expected "
                    "benchmark(function)"
                )
            self._checked = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(f"the test cannot be imported{_last_lines(report.longreprtext)}")

    def _run(self, call: Call) -> None:
        if not self._checked:
            call.once()
            return
        self.measured = True
        call.lengthen()
        self._measure(call)

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem


def _again(item: pytest.Item) -> pytest.Item:
    """The same test once more: pytest keeps the fixtures of its module and sets up its own anew."""
    again = copy.copy(item)
    again._request = False  # type: ignore[attr-defined]  # how a test that runs again is marked
    if isinstance(item.parent, pytest.Class):
        for name in ("_instance", "_obj"):  # the instance of its class, which each run has anew
            again.__dict__.pop(name, None)
    return again


def _without_foreign(words: Sequence[str]) -> list[str]:
    """A command line without the options of plugins that are switched off here."""
    kept: list[str] = []
    drop_next = False
    for word in words:
        if word.startswith(_FOREIGN_OPTIONS):
            drop_next = word in _WITH_VALUE
        elif drop_next:
            drop_next = False
        else:
            kept.append(word)
    return kept


def _failure(report: pytest.TestReport) -> str:
    """What went wrong, and where."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return _last_lines(report.longreprtext).removeprefix(":")
    lines = str(crash.message).splitlines()[:_SHOWN_LINES]
    return "\n  ".join([*lines, f"{crash.path}:{crash.lineno}"])


def _last_lines(text: str) -> str:
    """The end of what was printed, behind a colon; nothing if nothing was."""
    lines = [line for line in text.splitlines() if line.strip()][-_SHOWN_LINES:]
    return "\n  ".join([":", *lines]) if lines else ""
