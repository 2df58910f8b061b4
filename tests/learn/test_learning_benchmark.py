"""The benchmark of learning: the rule that judges, and the page made from raw results."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CARTPOLE = "CartPole-v1"


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    yield importlib.import_module("rule")
    del sys.modules["rule"]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("learning_page")
    for name in ("learning_page", "learning_settings", "tables"):
        del sys.modules[name]


class Counting(gymnasium.Env[Any, Any]):
    """Ends after ten steps; the return is ten times the action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.left = 10
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return np.zeros(1, np.float32), float(action), self.left == 0, False, {}


@pytest.fixture
def counting() -> Iterator[str]:
    gymnasium.register("Counting-v0", Counting)
    yield "Counting-v0"
    del gymnasium.registry["Counting-v0"]


def always(action: int) -> Any:
    return lambda obs: np.full(len(obs), action)


def watch_of(rule: ModuleType, env_id: str, **settings: Any) -> Any:
    given = {"limit": 1000, "target": 50, "episodes": 3, "evaluate_every": 100, **settings}
    watch = rule.Watch(rule.Rule(env_id, **given))
    watch.start()
    return watch


def said(watch: Any, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    watch.report()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_two_passes_in_a_row_solve(rule: ModuleType, counting: str) -> None:
    watch = watch_of(rule, counting)
    over = [watch.judge(100 * i, always(a)) for i, a in enumerate((5, 4, 5, 6), start=1)]
    assert over == [False, False, False, True]
    assert [result for _, _, result in watch.curve] == [50, 40, 50, 60]


def test_between_two_evaluations_nothing_is_judged(rule: ModuleType, counting: str) -> None:
    watch = watch_of(rule, counting)
    for env_steps in (50, 99, 130, 199, 230):
        watch.judge(env_steps, always(1))
    assert [env_steps for env_steps, _, _ in watch.curve] == [130, 230]


def test_training_ends_at_the_limit_and_without_a_target_only_there(
    rule: ModuleType, counting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = watch_of(rule, counting, target=None, limit=400)
    assert [watch.judge(100 * i, always(9)) for i in (1, 2, 3, 4)] == [False, False, False, True]
    assert said(watch, capsys)["solved"] is False


def test_kept_policies_are_judged_in_order_up_to_the_one_that_solves(
    rule: ModuleType, counting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = watch_of(rule, counting)
    for env_steps, action in ((100, 1), (200, 5), (300, 5), (400, 1)):
        watch.mark(env_steps, lambda action=action: action)
    third = watch.waiting[2].seconds
    watch.settle(always)
    outcome = said(watch, capsys)
    assert outcome["solved"]
    assert (outcome["env_steps"], outcome["seconds"]) == (300, third)
    assert [result for _, _, result in outcome["curve"]] == [10, 50, 50]


def test_what_was_collected_before_the_clock_counts_as_long_as_the_rest(
    rule: ModuleType, counting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = watch_of(rule, counting, limit=200)
    watch.start(ahead=50)
    watch.judge(200, always(1))
    assert said(watch, capsys)["seconds"] == pytest.approx(watch.seconds * 200 / 150)


def test_a_margin_is_taken_off_the_mean(rule: ModuleType, counting: str) -> None:
    watch = watch_of(rule, counting, margin=2.0, episodes=4)
    watch.judge(100, lambda obs: np.arange(4)[: len(obs)])
    returns = np.array([0.0, 10, 20, 30])
    expected = returns.mean() - 2 * returns.std(ddof=1) / 2
    assert watch.curve[0][2] == pytest.approx(expected)


# --- the page ------------------------------------------------------------------------------------


def line(page: ModuleType, system: str, seed: int, **more: Any) -> dict[str, Any]:
    return {
        "version": "new",
        "at": 86_400.0 * seed,  # a day each
        "env": CARTPOLE,
        "system": system,
        "seed": seed,
        "settings": dict(page.TRAININGS[CARTPOLE][system]),
        "busy": 0.0,
        "machine": {"processor": "P", "cores": 2},
        "solved": True,
        "env_steps": 20_000,
        "seconds": 2.0,
        "cpu_seconds": 1.0,
        "curve": [[20_000, 2.0, 500.0]],
    } | more


def written(page: ModuleType, tmp_path: Path, lines: list[dict[str, Any]]) -> str:
    results, markdown = tmp_path / "results.jsonl", tmp_path / "page.md"
    results.write_text("".join(json.dumps(each) + "\n" for each in lines))
    page.write(results, markdown)
    return markdown.read_text()


def test_only_the_newest_code_and_the_settings_of_now_count(page: ModuleType) -> None:
    lines = [
        line(page, "PPO", 1, version="old"),
        line(page, "PPO", 2, version="new"),
        line(page, "PPO", 3, settings={"algorithm": "ppo"}),
        line(page, "PPO", 2, version="new", seconds=9.0),
    ]
    seeds = page.newest(lines)[CARTPOLE, "PPO"]
    assert {seed: each["seconds"] for seed, each in seeds.items()} == {2: 9.0}


def test_an_unsolved_training_counts_as_endless(page: ModuleType, tmp_path: Path) -> None:
    lines = [line(page, "PPO", seed, solved=seed == 1) for seed in (1, 2, 3)]
    assert "| 1 of 3 | **unsolved** (20.0k to unsolved) |" in written(page, tmp_path, lines)


def test_wants_are_judged_by_the_median_over_shared_seeds(page: ModuleType, tmp_path: Path) -> None:
    ours = [line(page, "PPO", seed, seconds=1.0) for seed in range(1, 7)]
    theirs = [line(page, "SB3 PPO", seed, seconds=3.0) for seed in range(2, 8)]
    slower = [line(page, "Tianshou PPO", seed, seconds=9.0) for seed in range(1, 7)]
    text = written(page, tmp_path, ours + theirs + slower)
    assert "0.33 (0.33 to 0.33) of SB3 PPO, 5 seeds; in processor time 1.00 | reached |" in text
    text = written(page, tmp_path, [each | {"seconds": 2.0} for each in ours] + theirs)
    assert "0.67 (0.67 to 0.67) of SB3 PPO, 5 seeds; in processor time 1.00 | missed |" in text


def test_too_few_seeds_judge_nothing(page: ModuleType, tmp_path: Path) -> None:
    lines = [line(page, "PPO", 1, seconds=1.0), line(page, "SB3 PPO", 1, seconds=3.0)]
    text = written(page, tmp_path, lines)
    assert "of SB3 PPO, 1 seeds; 5 seeds were wanted; in processor time 1.00 | too few" in text


def test_the_page_says_what_is_missing_and_what_was_busy(page: ModuleType, tmp_path: Path) -> None:
    lines = [line(page, "PPO", 1), line(page, "PPO", 2, busy=0.9)]
    lines += [{**line(page, "APPO", 1), "refused": "did not end within 9 s"}]
    text = written(page, tmp_path, lines)
    assert "**1 of 3 trainings began while others kept more than 20%" in text
    assert "- CartPole-v1, PPO: 2 of 5 seeds." in text
    assert "- CartPole-v1, APPO, seed 1: did not end within 9 s." in text
    assert "- CartPole-v1, IMPALA: 0 of 5 seeds." in text


def test_a_row_says_on_which_days_it_was_trained(page: ModuleType, tmp_path: Path) -> None:
    lines = [line(page, "PPO", 1), line(page, "PPO", 3), line(page, "SB3 PPO", 1)]
    text = written(page, tmp_path, lines)
    assert "| hotloop PPO | new | 1970-01-02 to 1970-01-04 | 2 of 2 |" in text
    assert "| SB3 PPO | new | 1970-01-02 | 1 of 1 |" in text


def test_no_page_without_results(page: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="found none"):
        written(page, tmp_path, [])


def test_processor_time_is_of_single_processes_only(page: ModuleType, tmp_path: Path) -> None:
    lines = [line(page, "IMPALA", 1, cpu_seconds=None), line(page, "SB3 PPO", 1)]
    text = written(page, tmp_path, lines)
    assert "1.00 (1.00 to 1.00) of SB3 PPO, 1 seeds; 10 seeds were wanted | too few seeds |" in text
    assert "| none | **10.0k** (10.0k to 10.0k) |" in text


def test_what_neither_solves_is_not_compared(page: ModuleType, tmp_path: Path) -> None:
    lines = [line(page, name, 1, solved=False) for name in ("PPO", "SB3 PPO")]
    assert "| no seed to compare with SB3 PPO |" in written(page, tmp_path, lines)
