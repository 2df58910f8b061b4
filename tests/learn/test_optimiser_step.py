"""An optimiser step in its three ways: the same parameters, whichever is taken."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from hotloop.data.layout import leaves, tree_map
from hotloop.errors import CaptureError, SettingError
from hotloop.learn.algorithms import learner_type
from hotloop.learn.checkpoint import load_checkpoint
from hotloop.learn.losses import Batch, clipped_loss
from hotloop.learn.optimiser_step import (
    MOST_GRAPHS,
    CapturedStep,
    CompiledStep,
    Descent,
    PlainStep,
    expect_compiler,
    make_optimizer,
    step_of_adam,
)
from hotloop.learn.ppo import PPOSettings
from hotloop.learn.training import Trainer, train
from hotloop.loop.capture import WARM_UP_RUNS
from support.policies import ACTIONS, VECTOR, masked, sampled
from support.policies import moved_policy as moved

# In single precision as exact as in double: a graph has these as tensors.
RATE, CLIP, ROWS = 2.0**-8, 0.25, 24
DISCRETE, BOX = ACTIONS[0], ACTIONS[-1]
ALGORITHMS = ("ppo", "appo", "impala", "apex")
CPU = torch.device("cpu")


class Again:
    """Stands for a captured graph: repeats a step by running it again."""

    def __init__(self, body):
        self._body, self.replays = body, 0

    def replay(self):
        self.replays += 1
        self._body()


class Captures:
    """Stands for the capture of graphs; `made` are those captured."""

    def __init__(self):
        self.made = []

    def __call__(self, device, body, warm_up):
        for _ in range(WARM_UP_RUNS):
            warm_up()
        body()
        self.made.append(Again(body))
        return self.made[-1]


def refuse(got, batch):
    return ArithmeticError(f"{got} of {len(batch.action)}")


def descent(action_space=DISCRETE, *, compiled="plain", precision="float32", obs=VECTOR):
    policy = moved(obs, action_space)
    optimizer = make_optimizer(policy.flat, RATE, compiled)
    loss = partial(clipped_loss, policy, PPOSettings(entropy_weight=0.01))
    return Descent(policy, optimizer, loss, 0.5, precision, refuse)


def batch_of(made, seed, rows=ROWS, obs=VECTOR):
    policy, rng = made.policy, np.random.default_rng(seed)
    seen = sampled(obs, rows, seed)
    if obs is not VECTOR:
        seen["action_mask"][:, 0] = 1
    action, extras = policy.actor(seed)(seen)
    numbers = [torch.from_numpy(rng.standard_normal(rows, np.float32)) for _ in range(2)]
    log_prob = torch.from_numpy(extras["log_prob"]) + 0.1 * numbers[0]
    return Batch(policy.tensors(seen), torch.from_numpy(action), log_prob, *numbers)


def captured(action_space=DISCRETE, **settings):
    captures = Captures()
    return CapturedStep(descent(action_space, compiled="graph", **settings), captures), captures


def state(step):
    made = step._descent
    return [made.policy.flat.detach(), *made.optimizer.state[made.policy.flat].values()]


def expect_same(one, other):
    for mine, theirs in zip(state(one), state(other), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("compiled", ["plain", "graph"])
def test_a_step_of_adam_gives_the_bits_of_its_method(compiled):
    found = []
    for take in (step_of_adam, lambda optimizer: optimizer.step()):
        flat = torch.linspace(-1, 1, 50).requires_grad_()
        optimizer = make_optimizer(flat, RATE, compiled)
        for number in range(4):
            flat.grad = (flat.detach() * (number + 1)).sin()
            take(optimizer)
        found.append([flat.detach(), *optimizer.state[flat].values()])
    assert found[0][1] == 4
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("action_space", ACTIONS, ids=str)
def test_a_captured_step_gives_the_bits_of_a_plain_one(action_space):
    plain, (graph, captures) = PlainStep(descent(action_space)), captured(action_space)
    for seed in range(4):
        batch = batch_of(plain._descent, seed)
        terms = [step(batch, {"clip": CLIP}) for step in (plain, graph)]
        for mine, theirs in zip(*terms, strict=True):
            assert torch.equal(mine, theirs)
        expect_same(plain, graph)
    assert [one.replays for one in captures.made] == [4]


def test_a_masked_policy_is_captured_too():
    obs = masked(VECTOR, 3)
    plain, (graph, _) = PlainStep(descent(obs=obs)), captured(obs=obs)
    for seed in range(3):
        batch = batch_of(plain._descent, seed, obs=obs)
        for step in (plain, graph):
            step(batch, {"clip": CLIP})
    expect_same(plain, graph)


def test_the_buffers_of_a_graph_are_filled_and_used_again():
    graph, captures = captured()
    batch = batch_of(graph._descent, 0)
    graph(batch, {"clip": CLIP})
    [kept] = graph._graphs.values()
    before = [leaf.data_ptr() for leaf in leaves(kept._batch)]
    assert not set(before) & {leaf.data_ptr() for leaf in leaves(batch)}
    other = batch_of(graph._descent, 1)
    graph(other, {"clip": 0.5})
    assert [leaf.data_ptr() for leaf in leaves(kept._batch)] == before
    for mine, given in zip(leaves(kept._batch), leaves(other), strict=True):
        assert torch.equal(mine, given)
    assert kept._numbers["clip"].item() == 0.5
    assert len(captures.made) == 1


def test_what_a_graph_keeps_does_not_hold_the_operations_of_a_run():
    """A card's streams would meet in them: the warm-up runs on another one than the capture."""
    graph, _ = captured()
    terms = graph(batch_of(graph._descent, 0), {"clip": CLIP})
    [kept] = graph._graphs.values()
    assert terms.log_ratio is not None
    assert not any(each.requires_grad for each in (kept._loss, *terms) if each is not None)


def test_each_shape_has_a_graph_and_what_is_beyond_the_most_needs_none(caplog):
    plain, (graph, captures) = PlainStep(descent()), captured()
    sizes = [*range(2, 2 + MOST_GRAPHS + 2), 2, 3]
    with caplog.at_level(logging.WARNING, "hotloop"):
        for seed, size in enumerate(sizes):
            batch = batch_of(plain._descent, seed, size)
            for step in (plain, graph):
                step(batch, {"clip": CLIP})
    expect_same(plain, graph)
    assert graph.graphs == len(captures.made) == MOST_GRAPHS
    assert caplog.text.count(f"batches had more than {MOST_GRAPHS} shapes") == 1


@pytest.mark.parametrize("first", [True, False])
def test_a_gradient_that_is_no_number_changes_nothing(first):
    plain, (graph, _) = PlainStep(descent()), captured()
    good = batch_of(plain._descent, 0)
    bad = good._replace(advantage=good.advantage.clone().fill_(torch.nan))
    for step in (plain, graph):
        if not first:
            step(good, {"clip": CLIP})
        before = [tensor.clone() for tensor in state(step)]
        with pytest.raises(ArithmeticError, match=rf"loss nan and .* norm nan of {ROWS}"):
            step(bad, {"clip": CLIP})
        for now, then in zip(state(step), before, strict=False):
            assert torch.equal(now, then)
        step(good, {"clip": CLIP})
    expect_same(plain, graph)


def test_a_state_that_was_exchanged_is_captured_anew():
    plain, (graph, captures) = PlainStep(descent()), captured()
    batch = batch_of(plain._descent, 0)
    for step in (plain, graph):
        step(batch, {"clip": CLIP})
        optimizer = step._descent.optimizer
        saved = optimizer.state_dict()
        saved["state"] = {0: {n: 2 * t for n, t in saved["state"][0].items()}}
        optimizer.load_state_dict(saved)
        step(batch, {"clip": CLIP})
    expect_same(plain, graph)
    assert len(captures.made) == 2


def test_what_no_graph_can_hold_is_said():
    def refuses(device, body, warm_up):
        warm_up()
        raise CaptureError("operation not permitted when stream is capturing")

    step = CapturedStep(descent(compiled="graph"), refuses)
    before = step._descent.policy.flat.detach().clone()
    with pytest.raises(SettingError, match=r"a CUDA graph can hold, got: operation not.*'plain'"):
        step(batch_of(step._descent, 0), {"clip": CLIP})
    assert torch.equal(step._descent.policy.flat.detach(), before)


@pytest.mark.parametrize("graph", [False, True])
def test_bfloat16_is_near_and_leaves_parameters_and_optimiser_in_single_precision(graph):
    """Within 2% of the length of the way that single precision takes, which is bfloat16's own."""
    exact = PlainStep(descent(BOX))
    near = (
        captured(BOX, precision="bfloat16")[0]
        if graph
        else PlainStep(descent(BOX, precision="bfloat16"))
    )
    start = exact._descent.policy.flat.detach().clone()
    grads = []
    for step in (exact, near):
        terms = step(batch_of(step._descent, 0), {"clip": CLIP})
        assert {t.dtype for t in (*state(step), *terms)} == {torch.float32}
        grads.append(step._descent.policy.grad.clone())
    assert not torch.equal(*grads)
    assert (grads[0] - grads[1]).norm() < 0.02 * grads[0].norm()
    assert not torch.equal(start, near._descent.policy.flat)


def compiler():
    try:
        expect_compiler(CPU)
    except SettingError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not compiler(), reason="torch.compile finds no C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_a_compiled_loss_gives_the_parameters_of_a_plain_one():
    plain, compiled = PlainStep(descent()), CompiledStep(descent())
    for seed, clip in enumerate((CLIP, 0.2)):
        batch = batch_of(plain._descent, seed)
        for step in (plain, compiled):
            step(batch, {"clip": clip})
    # It adds up in another order; Adam's first steps are as long for a small gradient.
    torch.testing.assert_close(*(step._descent.policy.grad for step in (plain, compiled)))


def test_without_a_compiler_compile_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SettingError, match=r"expected a C\+\+ compiler on PATH .* take 'plain'"):
        CompiledStep(descent())


# --- in the learners -----------------------------------------------------------------------------


def settings_of(algorithm, **settings):
    usual = {"backend": "serial", "learning_rate": RATE, "anneal": False, "hidden_size": 8}
    if algorithm != "ppo":
        usual["policy_at"] = "envs"
    if algorithm == "apex":
        usual |= {"learn_after": 100, "batch_size": 32}
    if algorithm in ("ppo", "appo"):
        usual |= {"minibatches": 2, "epochs": 2}
    return learner_type(algorithm).settings_type(**{**usual, **settings})


def learner_of(settings):
    return learner_type(settings.algorithm)(settings)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_learner_learns_the_same_by_graphs(algorithm):
    found = []
    for in_graph in (False, True):
        learner = learner_of(settings_of(algorithm))
        if in_graph:
            captures = Captures()
            learner.optimizer = make_optimizer(learner.policy.flat, RATE, "graph")
            learner.step = CapturedStep(learner.descent(), captures)
        for _ in range(3):
            learner.iterate()
        found.append((learner.policy.flat.detach().clone(), learner.figures()))
        saved = learner.state_dict()["optimizer"]
        assert saved["step"] > 0
        learner.close()
    assert len(captures.made) == 1
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == pytest.approx(found[1][1], nan_ok=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_learner_learns_in_bfloat16(algorithm):
    flat = []
    for precision in ("float32", "bfloat16"):
        learner = learner_of(settings_of(algorithm, precision=precision))
        for _ in range(3):
            learner.iterate()
        flat.append(learner.policy.flat.detach().clone())
        learner.close()
    assert flat[1].dtype == torch.float32
    assert flat[1].isfinite().all()
    assert not torch.equal(*flat)


def test_a_resumed_training_in_bfloat16_meets_the_unbroken_one(tmp_path):
    settings = settings_of("ppo", precision="bfloat16", total_steps=1024, evaluate_every=10_000)
    cut = tmp_path / "cut.checkpoint"
    whole = train(settings, checkpoint=tmp_path / "whole.checkpoint", checkpoint_every=512)
    train(replace(settings, total_steps=512), checkpoint=cut, checkpoint_every=512)
    resumed = train(settings, checkpoint=cut, checkpoint_every=512, resume=load_checkpoint(cut))
    both = [load_checkpoint(one.checkpoint).state for one in (whole, resumed)]
    for part in ("policy", "optimizer"):
        for name, array in both[0][part].items():
            np.testing.assert_array_equal(array, both[1][part][name])


@pytest.mark.parametrize(("before", "after"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_a_checkpoint_of_another_precision_is_gone_on_from(tmp_path, before, after):
    path = tmp_path / "a.checkpoint"
    settings = settings_of("ppo", precision=before, total_steps=256, evaluate_every=10_000)
    train(settings, checkpoint=path)
    saved = load_checkpoint(path)
    with Trainer(replace(settings, precision=after, total_steps=512), resume=saved) as trainer:
        flat = trainer.learner.policy.flat
        np.testing.assert_array_equal(flat.detach(), saved.state["policy"]["parameters"])
        trainer.run()
        assert flat.dtype == torch.float32
        assert trainer.learner.progress.env_steps == 512


@pytest.mark.parametrize(
    ("algorithm", "settings", "said"),
    [
        ("ppo", {"precision": "bf16"}, "ppo: precision: expected 'float32', 'bfloat16', got 'bf16"),
        ("impala", {"compiled": "graphs"}, "compiled: expected 'plain', .* did you mean 'graph'"),
        (
            "apex",
            {"compiled": "graph"},
            "apex: compiled: .*'graph' with device 'cpu', which has no",
        ),
        ("appo", {"transfer": "pinned"}, "transfer: .*'pinned' with device 'cpu', which needs no"),
        ("ppo", {"transfer": "pined"}, "transfer: expected 'plain', 'pinned', got 'pined'"),
        (
            "apex",
            {"compiled": "compile", "normalise_values": True},
            "apex: compiled: expected 'plain' with normalise_values",
        ),
    ],
)
def test_settings_that_cannot_act_are_refused(algorithm, settings, said):
    with pytest.raises(SettingError, match=said):
        settings_of(algorithm, **settings)


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "more",
    [
        {"compiled": "graph"},
        {"transfer": "pinned"},
        {"compiled": "graph", "transfer": "pinned", "precision": "bfloat16"},
    ],
    ids=str,
)
def test_on_a_card_every_rung_learns_what_the_plain_one_learns(algorithm, more):
    """With pinned transfer Ape-X draws one batch ahead: it learns from other batches then."""
    flat = []
    for rung in ({}, more):
        learner = learner_of(settings_of(algorithm, device="cuda", **rung))
        start = learner.policy.flat.detach().clone()
        for _ in range(2):
            learner.iterate()
        flat.append(learner.policy.flat.detach().clone())
        assert flat[-1].isfinite().all()
        assert not torch.equal(start, flat[-1])
        learner.close()
    if "precision" not in more and not (algorithm == "apex" and "transfer" in more):
        torch.testing.assert_close(*flat, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_on_a_card_a_gradient_that_is_no_number_changes_nothing_in_a_graph():
    made = descent(compiled="graph")
    policy = moved(VECTOR, DISCRETE, device="cuda")
    loss = partial(clipped_loss, policy, PPOSettings())
    step = CapturedStep(
        Descent(policy, make_optimizer(policy.flat, RATE, "graph"), loss, 0.5, "float32", refuse)
    )
    good = Batch(*tree_map(lambda t: t.to("cuda"), tuple(batch_of(made, 0))))
    step(good, {"clip": CLIP})
    before = policy.flat.detach().clone()
    with pytest.raises(ArithmeticError, match="norm nan"):
        step(good._replace(target=good.target * torch.nan), {"clip": CLIP})
    assert torch.equal(policy.flat.detach(), before)
    step(good, {"clip": CLIP})
    assert not torch.equal(policy.flat.detach(), before)
