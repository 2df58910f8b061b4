"""What a profile of a model says: FLOPs worked by hand, what has no rule, and times on threads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hotloop
from hotloop.benchmark.peaks import Peaks
from hotloop.loop.run import load
from hotloop.profile import model_profile, profile
from hotloop.profile.model_costs import Cost, ModelProfile
from hotloop.profile.origins import BACKWARD, FORWARD, OPTIMISER
from hotloop.profile.parts import OUTSIDE, Part
from hotloop.profile.trace import CardEvent, Slice, TraceEvent, TraceTimes, part_range
from hotloop.report.html import write_html
from support.planted import line_of

torch = pytest.importorskip("torch")
nn = torch.nn

ROWS, INPUTS, HIDDEN, OUTPUTS = 4, 6, 8, 2
PARAMETERS = INPUTS * HIDDEN + HIDDEN + HIDDEN * OUTPUTS + OUTPUTS


@pytest.fixture(scope="module", autouse=True)
def short_warm_up() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile, "WARM_UP_S", 0.1)
        yield


class Net(nn.Module):  # type: ignore[misc]  # torch is not there for the checker
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh())
        self.head = nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


def staged(**functions: Callable[[], object]) -> hotloop.Loop:
    stages = [hotloop.stage(name, function) for name, function in functions.items()]

    def body() -> int:
        for each in stages:
            each()
        return 1

    return hotloop.Loop(body=body, unit="turns")


def learning_loop() -> hotloop.Loop:
    net, x = Net(), torch.ones(ROWS, INPUTS)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, foreach=False)

    def update() -> None:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    def act() -> None:
        with torch.no_grad():
            net.head(net.body(x))  # without the module around them

    return staged(act=act, update=update)


@pytest.fixture(scope="module")
def result() -> Any:
    return hotloop.run_profile(learning_loop(), model=True, seconds=0.6)


@pytest.fixture(scope="module")
def learning(result: Any) -> ModelProfile:
    found: ModelProfile = result.profiles["model"]
    return found


FIRST, SECOND = 2 * ROWS * INPUTS * HIDDEN, 2 * ROWS * HIDDEN * OUTPUTS
TANH = ROWS * HIDDEN


@pytest.mark.long
def test_modules_have_the_flops_of_their_passes(learning: ModelProfile) -> None:
    found = {(m.stage, m.module, m.pass_name): m.cost.flops for m in learning.modules}
    assert found["act", "Net.body.0", FORWARD] == FIRST
    assert found["act", "Net.head", FORWARD] == SECOND
    assert found["update", "Net.body.0", FORWARD] == FIRST
    assert found["update", "Net.body.1", FORWARD] == TANH
    assert found["update", "Net.head", FORWARD] == SECOND
    # To the weights, to the inputs, and the sum of the biases; of the first layer no inputs.
    assert found["update", "Net.head", BACKWARD] == 2 * SECOND + ROWS * OUTPUTS
    assert found["update", "Net.body.1", BACKWARD] == 3 * TANH
    assert found["update", "Net.body.0", BACKWARD] == FIRST + ROWS * HIDDEN
    assert found["update", "SGD", OPTIMISER] == PARAMETERS
    kinds = {m.module: m.kind for m in learning.modules}
    assert kinds["Net.body.0"] == "Linear"


def test_stages_have_the_flops_of_what_is_in_them(learning: ModelProfile) -> None:
    stages = {each.stage: each for each in learning.stages}
    assert stages["act"].cost.flops == FIRST + TANH + SECOND
    assert learning.whole.flops == sum(each.cost.flops for each in learning.stages)
    assert learning.call_coverage == learning.time_coverage == 1.0
    assert not learning.uncounted
    for each in stages.values():
        assert 0 < each.cost.time_ns < learning.whole.time_ns
        assert each.outside is not None
        assert 0 < each.outside < 1


def test_operations_have_calls_and_times(learning: ModelProfile) -> None:
    products = {o.operation: o for o in learning.operations if o.stage == "update"}
    assert products["aten.addmm"].cost.calls == 2
    assert products["aten.addmm"].cost.flops == FIRST + SECOND
    assert products["aten.mm"].cost.calls == 3
    # The inputs, weights and biases are read, the outputs written.
    numbers = (ROWS + HIDDEN) * INPUTS + HIDDEN + ROWS * HIDDEN
    numbers += (ROWS + OUTPUTS) * HIDDEN + OUTPUTS + ROWS * OUTPUTS
    assert products["aten.addmm"].cost.moved_bytes == 4 * numbers
    for each in learning.operations:
        assert each.cost.time_ns > 0, each
    in_operations = sum(each.cost.time_ns for each in learning.operations)
    assert in_operations < learning.whole.time_ns * 10


def test_products_are_those_of_torchs_own_counter(learning: ModelProfile) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    loop = learning_loop()
    with FlopCounterMode(display=False) as counter:
        loop.body()
    products = [o for o in learning.operations if o.operation in ("aten.mm", "aten.addmm")]
    assert sum(each.cost.flops for each in products) == counter.get_total_flops()


@pytest.mark.long
def test_an_operation_without_a_rule_is_named_with_stage_line_and_calls() -> None:
    with torch.library._scoped_library("planted_model", "DEF") as library:
        library.define("fold(Tensor x) -> Tensor")
        library.impl("fold", lambda x: (x @ x.T).sum(), "CompositeExplicitAutograd")
        x = torch.ones(200, 200)

        def known() -> None:
            torch.tanh(x)

        def planted() -> None:
            for _ in range(3):
                torch.ops.planted_model.fold(x)  # fault

        loop = staged(known=known, planted=planted)
        found = hotloop.run_profile(loop, model=True, seconds=0.4).profiles["model"]
    (named,) = found.uncounted
    assert (named.operation, named.stage) == ("planted_model.fold", "planted")
    assert Path(named.file).name == Path(__file__).name
    assert named.line == line_of(planted)
    assert named.cost.calls == 3
    assert named.cost.moved_bytes == 3 * (x.nbytes + 4)
    assert named.cost.time_ns > 0
    assert found.call_coverage == pytest.approx(1 / 4)
    assert 0 < found.time_coverage < 1


@pytest.mark.long
def test_a_backward_operation_without_a_rule_has_the_line_of_its_forward() -> None:
    matrix = torch.eye(3).requires_grad_()

    def planted() -> None:
        value = torch.linalg.det(matrix)  # fault
        value.backward()

    found = hotloop.run_profile(staged(solve=planted), model=True, seconds=0.4).profiles["model"]
    lines = {(each.operation, each.pass_name): each.line for each in found.uncounted}
    assert lines["aten._linalg_det", FORWARD] == line_of(planted)
    backwards = [line for (_, pass_name), line in lines.items() if pass_name == BACKWARD]
    assert backwards
    assert set(backwards) == {line_of(planted)}


@pytest.mark.long
def test_what_is_computed_again_in_the_backward_pass_is_of_its_module() -> None:
    from torch.utils.checkpoint import checkpoint

    net, x = Net(), torch.ones(ROWS, INPUTS, requires_grad=True)

    def again() -> None:
        net.head(checkpoint(net.body, x, use_reentrant=False)).sum().backward()

    found = hotloop.run_profile(staged(again=again), model=True, seconds=0.4).profiles["model"]
    flops = {(m.module, m.pass_name): m.cost.flops for m in found.modules}
    assert flops["Net.body.0", FORWARD] == 2 * FIRST
    assert flops["Net.head", FORWARD] == SECOND


def is_counting() -> bool:
    return torch.utils._python_dispatch._get_current_dispatch_mode() is not None


@pytest.mark.parametrize("when", [is_counting, torch.autograd._profiler_enabled])
def test_nothing_is_left_behind_after_an_error(when: Callable[[], bool]) -> None:
    from torch.nn.modules import module
    from torch.optim import optimizer

    def failing() -> None:
        torch.ones(2) + 1
        if when():
            assert module._global_forward_hooks
            raise ValueError("planted")

    loop = staged(failing=failing)
    with pytest.raises(ValueError, match="planted"):
        hotloop.run_profile(loop, model=True, seconds=60.0)
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks
    assert not optimizer._global_optimizer_pre_hooks
    assert not is_counting()
    assert not torch.autograd._profiler_enabled()


def test_a_loop_without_torch_has_no_profile_and_is_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_profile, "torch_if_loaded", lambda: None)
    told = hotloop.run_profile(staged(nothing=lambda: None), model=True, seconds=0.2)
    assert "model" not in told.profiles
    assert "has not loaded torch" in told.found.missing["model"]


def test_the_report_has_tables_and_a_roofline(result: Any, tmp_path: Path) -> None:
    result.save(tmp_path / "it.run")
    page = tmp_path / "page.html"
    write_html([load(tmp_path / "it.run")], page)
    text = page.read_text()
    for words in ("Roofline", "Arithmetic by stage", "Net.body.0", "of the roof", "aten.addmm"):
        assert words in text
    assert "Operations without a rule" not in text


# --- costs and traces, by hand -------------------------------------------------------------------

PEAKS = Peaks(flops_per_s=100e9, bytes_per_s=10e9, device="cpu", how="planted")


def test_the_roof_is_the_peak_or_what_memory_can_feed() -> None:
    rich = Cost(calls=1, flops=4e6, moved_bytes=1e5, time_ns=80_000)
    assert rich.intensity == 40
    assert rich.flops_per_s == 50e9
    assert rich.roof_flops_per_s(PEAKS) == 100e9
    assert rich.share_of_roof(PEAKS) == pytest.approx(0.5)
    poor = Cost(calls=1, flops=1e5, moved_bytes=4e5, time_ns=160_000)
    assert poor.roof_flops_per_s(PEAKS) == pytest.approx(2.5e9)
    assert poor.share_of_roof(PEAKS) == pytest.approx(0.25)
    assert poor.share_of_roof(PEAKS) == pytest.approx(
        poor.flops_per_s / poor.roof_flops_per_s(PEAKS)
    )
    copies = Cost(calls=1, flops=0, moved_bytes=4e5, time_ns=160_000)
    assert copies.share_of_roof(PEAKS) == pytest.approx(0.25)
    assert Cost(1, 0, 0, 5).share_of_roof(PEAKS) is None


LAYER = Part("Net.head", "Linear")


def event(
    name: str, start: int, length: int, thread: int = 1, sequence: int = -1, number: int = 0
) -> TraceEvent:
    return TraceEvent(name, start, length, thread, sequence, 1, number)


def test_times_are_of_what_is_counted_and_of_python_between() -> None:
    times = TraceTimes({"aten.addmm"}).add(
        [
            event("stage: update", 0, 100),
            event(part_range(LAYER), 10, 60),
            event("aten::linear", 20, 40, sequence=7),
            event("aten::addmm", 25, 30, sequence=7, number=3),
            event("aten::copy_", 30, 10),
        ],
        [CardEvent(3, 500), CardEvent(99, 1)],
    )
    stages = ("update",)
    assert times.spent[Slice(stages, "", OUTSIDE, FORWARD)].host_ns == 40
    assert times.spent[Slice(stages, "", LAYER, FORWARD)].host_ns == 20
    assert times.spent[Slice(stages, "aten.linear", LAYER, FORWARD)].host_ns == 10
    product = times.spent[Slice(stages, "aten.addmm", LAYER, FORWARD)]
    assert (product.calls, product.host_ns, product.device_ns) == (1, 30, 500)
    assert len(times.spent) == 4, "what it calls is its own"


def test_a_backward_pass_on_another_thread_is_of_the_stage_that_waits_and_of_its_module() -> None:
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    times = TraceTimes({"aten.mm", "aten.addmm"}).add(
        [
            event("stage: loss", 0, 40),
            event(part_range(LAYER), 5, 20),
            event("aten::addmm", 10, 10, sequence=7),
            event("stage: update", 50, 100),
            event(node, 60, 30, thread=2, sequence=7),
            event("aten::mm", 70, 10, thread=2),
            event(node, 95, 5, thread=2, sequence=6),
        ]
    )
    products = Slice(("update",), "aten.mm", LAYER, BACKWARD)
    assert times.spent[products].host_ns == 10
    around = {at: each.host_ns for at, each in times.spent.items() if "autograd" in at.operation}
    assert {(at.part, time) for at, time in around.items()} == {(LAYER, 20), (OUTSIDE, 5)}
    assert times.spent[Slice(("update",), "", OUTSIDE, FORWARD)].host_ns == 100, "it waits"
