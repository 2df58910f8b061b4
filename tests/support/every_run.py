"""A run of every kind, as a measurement or a search leaves it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hotloop
from hotloop.loop.run import Run
from hotloop.optimize.advice import Advice, Evidence
from hotloop.optimize.outcome import advice_facts
from hotloop.plan.modes import Cell
from hotloop.plan.points import Point, Question
from hotloop.plan.settings import PlanSettings
from hotloop.plan.summary import plan_run
from support.comparisons import about, record_of


def loop() -> hotloop.Loop:
    load_batch = hotloop.stage("load", lambda: time.sleep(0.001) or 7, effect="pure")
    train = hotloop.stage("train", lambda x: sum(range(2000)) + x, effect="pure")

    def body() -> int:
        train(load_batch())
        return 1

    return hotloop.Loop(body=body, name="small")


OUTPUTS: list[dict[str, Any]] = [
    {
        **{"name": "daily_infected", "label": "infections", "kind": "count", "word": "infected"},
        **{"total_name": "total_infected", "total_label": "infections in all"},
        **{"share_of": "agents", "share_label": "of the agents", "peak": True, "colour": 0},
    },
    {
        **{"name": "immune", "label": "share of the immune", "kind": "level", "word": None},
        **{"share_of": None, "peak": True, "colour": 3},
    },
]


def simulated() -> Run:
    rng = np.random.default_rng(0)
    return Run(
        verb="simulate",
        target="covid:2000",
        settings={"seed": 0, "steps": 14, "replicates": 24},
        facts={
            **{"model": "covid", "population": "2000", "agents": 2000, "contacts": 9000},
            **{"device": "cpu", "seconds": 0.5, "step": "day", "start": [["infected", 3]]},
            "outputs": OUTPUTS,
            "stats": {"agent_steps_per_s": 1e6, "program": "dense", "precision": "double"},
        },
        arrays={
            "daily_infected": rng.integers(0, 9, (24, 14)),
            "immune": rng.uniform(0, 1, (24, 14)),
        },
    )


def calibrated() -> Run:
    days = np.arange(14.0)
    return Run(
        verb="calibrate",
        target="covid:2000",
        settings={"seed": 0, "population": "2000"},
        facts={
            **{"model": "covid", "population": "2000", "agents": 2000, "contacts": 9000},
            **{"device": "cpu", "seconds": 0.5, "step": "day", "start": [["infected", 3]]},
            **{"outputs": OUTPUTS, "replicates": 8, "notes": ["a note"]},
            "parameters": [
                {"label": "R, week 1", "group": "R by week", "fitted": True},
                {"label": "mortality", "group": "mortality", "fitted": False},
            ],
            "groups": [{"label": "mortality", "note": " kept"}],
        },
        arrays={
            **{"loss": np.linspace(9, 1, 5), "parameter": np.array([4.0, 0.02])},
            "parameter_first": np.array([4.5, 0.02]),
            "parameter_interval": np.array([[3, 5], [np.nan, np.nan]]),
            **{"observed_daily_infected": days, "observed_immune": days / 14},
            "fitted_daily_infected": np.stack([days, days - 1, days + 1]),
            "fitted_immune": np.stack([days / 14] * 3),
        },
    )


def trained() -> Run:
    return Run(
        verb="train",
        target="ppo:CartPole-v1",
        settings={"seed": 0},
        facts={
            **{"env_id": "CartPole-v1", "unit": "env steps", "threshold": 475.0, "solved": True},
            **{"steps_to_solve": 3000, "seconds_to_solve": 2.5},
        },
        arrays={
            **{"env_steps": np.arange(1000, 5000, 1000), "seconds": np.linspace(0, 3, 4)},
            **{"mean_return": np.array([20.0, 200.0, 480.0, 490.0])},
            "passed": np.array([False, False, True, True]),
        },
    )


def swept() -> Run:
    names = ("serial", "process", "auto")
    variant = {"splits": 1, "envs_per_worker": 8, "chosen": None, "problem": None}
    return Run(
        verb="backends",
        target="CartPole-v1",
        settings={"seconds": 3.0},
        facts={
            **{"unit": "env steps", "env_id": "CartPole-v1", "num_envs": 8, "round_s": 0.3},
            **{"choice": "serial, for it is fastest", "usable_cores": 2, "probe": None},
            "variants": [variant | {"backend": name, "num_workers": 2} for name in names],
        },
        arrays={"sps": np.random.default_rng(0).uniform(1e4, 2e4, (3, 6))},
    )


def compared(verb: str, settings: dict[str, float]) -> Run:
    record = record_of(about(0.1, 0.05, 5))
    return Run(
        verb=verb,
        target="a.py:make / b.py:make",
        settings={"budget": 120.0, "seed": 0} | settings,
        facts=record.facts() | {"sides": ["a.py:make", "b.py:make"]},
        arrays=record.arrays(),
    )


CELLS = [(2, 1.0, 92.0), (32, 0.1, 4041.0), (2, 0.01, 3131.0), (8, 0.001, 4226.0)]


def saved_points() -> list[dict[str, Any]]:
    return [
        {
            **{"nodes": nodes, "cores_per_node": 48, "step_s": step_s, "mode": "batched"},
            **{"fragment_steps": None, "sps": sps, "busy": 0.5},
        }
        for nodes, step_s, sps in CELLS
    ]


def simulated_nodes() -> Run:
    settings = {"nodes": [2], "step_s": [1.0], "cores_per_node": 48, "seconds": 3.0}
    return Run("nodes", "CartPole-v1", settings, {"points": saved_points()})


def planned() -> Run:
    points = [Point(Cell(n, 48, d), sps) for n, d, sps in CELLS]
    settings = PlanSettings(target_sps=3000.0, price_per_hour=2.0, learner_sps=1e5)
    questions = [Question(point.cell, point.sps) for point in points[:2]]
    run = plan_run("fit.csv", points, questions, settings)
    run.facts["simulated"] = [92.0, None]
    return run


def split() -> Run:
    splits = [{"act_cores": a, "learn_cores": 6 - a, "sps": s} for a, s in ((1, 80.0), (5, 225.0))]
    return Run("split", "splits.csv", {"cores": 6}, {"splits": splits})


def optimized() -> Run:
    lever = {
        "name": "chunk",
        "options": [1, 4],
        "before": 1,
        "after": 4,
        "about": "agents of a call",
        "area": "compute",
        "keeps_result": True,
        "risk": "",
        "stages": ["act"],
        "left_out": "",
    }
    advice = Advice("float64", "it is", "a.py", 3, "f", (Evidence("arrays", 2.0),), "do", 0.5)
    facts = {
        "levers": [lever],
        "gains": {"act": [0.5, 0.4, 0.6]},
        "trials": [
            {"changes": {"chunk": 4}, "ratio": 2.0, "rounds": 2, "problem": None},
            {"changes": {"chunk": 2}, "ratio": None, "rounds": 0, "problem": "it crashed"},
        ],
        "best": {"chunk": 4},
        "gain": [2.0, 1.9, 2.1],
        "unit": "calls",
        "over": "the budget was used",
        "unchecked": "",
        "judged_by": "rate",
        "experiment": "",
        "seconds": 3.0,
        "advice": advice_facts([advice]),
        "chosen": {"target": "loop", "settings": {}, "levers": {"chunk": 4}},
    }
    return Run("optimize", "loop", {"budget": 10.0}, facts)


def watched() -> Run:
    def stage(name: str, index: int, inside: str | None) -> dict[str, Any]:
        known = {"name": name, "kind": "cpu", "effect": "pure", "inside": inside, "index": index}
        return known | {"bytes_per_call": None, "cpu_share": None}

    blocks = np.arange(12)
    time_ns = np.stack([3e6 + 1e5 * blocks, 1e6 + 0 * blocks], axis=1)
    return Run(
        verb="watch",
        target="train.py",
        settings={"causal": True, "delay_share": 0.01, "every_s": 10.0},
        facts={
            **{"unit": "samples", "iterations_marked_by": "data, backward: 4 ms"},
            **{"no_iterations": None, "dropped_events": 0, "spent_s": 0.2},
            "stages": [stage("data", 0, None), stage("backward", 1, "data")],
        },
        arrays={
            **{"start_ns": 5_000_000 * blocks, "duration_ns": np.full(12, 4_000_000)},
            **{"units": np.full(12, 32.0), "block_of": blocks},
            **{"stage_ns": time_ns, "stage_running_ns": time_ns},
            "stage_calls": np.ones((12, 2)),
            "events": np.array([[0, 55_000_000, 58_000_000, 7], [1, 56_000_000, 57_000_000, 7]]),
            **{"period_s": np.full(6, 10.0), "period_iterations": np.linspace(2400, 2500, 6)},
            "period_units": np.linspace(76_800, 80_000, 6),
            **{"pair_stage": np.array([0, 1] * 4), "pair_delay_ns": np.full(8, 2e6)},
            "pair_base_ns": np.linspace(4e6, 4.1e6, 8),
            "pair_delayed_ns": np.linspace(6e6, 6.2e6, 8),
        },
    )


MAKERS: dict[str, Callable[[], Run]] = {
    "benchmark": lambda: hotloop.run_benchmark(loop(), seconds=0.5).run,
    "watch": watched,
    "simplify": lambda: hotloop.run_simplify(loop(), budget=1.5).run,
    "optimize": optimized,
    "backends": swept,
    "profile": lambda: hotloop.run_profile(loop(), time=True, memory=True, seconds=0.5).run,
    "nodes": simulated_nodes,
    "plan": planned,
    "split": split,
    "compare": lambda: compared("compare", {"margin": 0.03}),
    "gate": lambda: compared("gate", {"worse": 0.03}),
    "train": trained,
    "simulate": simulated,
    "calibrate": calibrated,
}
