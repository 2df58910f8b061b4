"""Callbacks of training libraries: each watches from the start to the end, also after an error."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hotloop.errors import SettingError
from hotloop.loop.control import process_control
from hotloop.loop.run import load


def assert_nothing_is_left() -> None:
    control = process_control()
    assert control.watcher is None
    assert not any(control.modes)
    assert not hasattr(torch.Tensor.backward, "__wrapped__") or (
        "hotloop" not in torch.Tensor.backward.__code__.co_filename
    )


@pytest.mark.parametrize("library", ["lightning", "transformers", "stable_baselines3", "tianshou"])
def test_a_library_that_is_missing_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] in (library, "pytorch_lightning"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    monkeypatch.delitem(sys.modules, f"hotloop.watch.{library}", raising=False)
    with pytest.raises(SettingError, match=r"which is not installed: pip install"):
        importlib.import_module(f"hotloop.watch.{library}")


class TestStableBaselines3:
    """PPO on CartPole."""

    def model(self) -> Any:
        pytest.importorskip("stable_baselines3")
        from stable_baselines3 import PPO

        return PPO("MlpPolicy", "CartPole-v1", n_steps=64, n_epochs=2, seed=0, device="cpu")

    def test_it_learns_what_it_learns_alone(self, tmp_path: Path) -> None:
        alone = self.model().learn(600).policy.state_dict()
        from hotloop.watch.stable_baselines3 import WatchCallback

        path = tmp_path / "a.run"
        callback = WatchCallback(run=path, terminal=False)
        watched = self.model().learn(600, callback=callback).policy.state_dict()
        assert all(torch.equal(alone[name], watched[name]) for name in alone)
        assert load(path).complete
        assert callback.fit.watched is not None
        assert_nothing_is_left()

    def test_it_ends_with_an_error_of_the_training(self, tmp_path: Path) -> None:
        model = self.model()
        from stable_baselines3 import PPO

        from hotloop.watch.stable_baselines3 import WatchCallback

        train, path = PPO.train, tmp_path / "a.run"

        def failing() -> None:
            raise ZeroDivisionError

        model.policy.train = lambda *_: None
        model.policy.evaluate_actions = lambda *_: failing()
        with pytest.raises(ZeroDivisionError):
            model.learn(600, callback=WatchCallback(run=path, terminal=False))
        assert PPO.train is train
        assert not load(path).complete
        assert_nothing_is_left()


class TestTianshou:
    """Reinforce on CartPole."""

    def training(self) -> tuple[Any, Any]:
        pytest.importorskip("tianshou")
        import gymnasium
        from tianshou.algorithm import Reinforce
        from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
        from tianshou.algorithm.optim import AdamOptimizerFactory
        from tianshou.data import Collector, VectorReplayBuffer
        from tianshou.env import DummyVectorEnv
        from tianshou.trainer import OnPolicyTrainerParams
        from tianshou.utils.net.common import Net
        from tianshou.utils.net.discrete import DiscreteActor

        np.random.seed(0)  # Tianshou draws its minibatches by it
        torch.manual_seed(0)
        env = gymnasium.make("CartPole-v1")
        envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(2)])
        envs.seed(0)
        net = Net(state_shape=(4,), hidden_sizes=[16])
        policy = ProbabilisticActorPolicy(
            actor=DiscreteActor(preprocess_net=net, action_shape=2, softmax_output=False),
            dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
            action_space=env.action_space,
            action_scaling=False,
        )
        algorithm = Reinforce(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
        collector = Collector(algorithm, envs, VectorReplayBuffer(2000, 2))
        params = OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=600,
            collection_step_num_env_steps=100,
            update_step_num_repetitions=1,
            batch_size=64,
            test_in_training=False,
            verbose=False,
            show_progress=False,
        )
        return algorithm, params

    @pytest.mark.long
    def test_it_learns_what_it_learns_alone(self, tmp_path: Path) -> None:
        algorithm, params = self.training()
        algorithm.run_training(params)
        alone = algorithm.policy.state_dict()
        from hotloop.watch.tianshou import run_training

        algorithm, params = self.training()
        run_training(algorithm, params, run=tmp_path / "a.run", terminal=False)
        watched = algorithm.policy.state_dict()
        assert all(torch.equal(alone[name], watched[name]) for name in alone)
        assert load(tmp_path / "a.run").complete
        assert_nothing_is_left()

    def test_it_ends_with_an_error_of_the_training(self, tmp_path: Path) -> None:
        from hotloop.watch.tianshou import run_training

        algorithm, params = self.training()
        params.training_fn = lambda *_: 1 / 0
        with pytest.raises(ZeroDivisionError):
            run_training(algorithm, params, run=tmp_path / "a.run", terminal=False)
        assert not load(tmp_path / "a.run").complete
        assert_nothing_is_left()


class TestLightning:
    """A linear model under Lightning."""

    def fit(self, callbacks: list[Any], fails: bool = False) -> dict[str, torch.Tensor]:
        lightning = pytest.importorskip("lightning.pytorch")

        class Model(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def training_step(self, batch: Any, index: int) -> torch.Tensor:
                if fails and index == 10:
                    raise ZeroDivisionError
                return self.layer(batch[0]).square().mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 1e-3)

        torch.manual_seed(0)
        model = Model()
        data = torch.utils.data.TensorDataset(torch.arange(1600.0).reshape(-1, 4) / 1600)
        trainer = lightning.Trainer(
            max_epochs=2,
            callbacks=callbacks,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=2))
        return model.state_dict()

    @pytest.mark.filterwarnings("ignore")
    def test_it_learns_what_it_learns_alone(self, tmp_path: Path) -> None:
        alone = self.fit([])
        from hotloop.watch.lightning import WatchCallback

        watched = self.fit([WatchCallback(run=tmp_path / "a.run", terminal=False)])
        assert all(torch.equal(alone[name], watched[name]) for name in alone)
        assert load(tmp_path / "a.run").complete
        assert_nothing_is_left()

    @pytest.mark.filterwarnings("ignore")
    def test_it_ends_with_an_error_of_the_training(self, tmp_path: Path) -> None:
        pytest.importorskip("lightning.pytorch")
        from hotloop.watch.lightning import WatchCallback

        with pytest.raises(ZeroDivisionError):
            self.fit([WatchCallback(run=tmp_path / "a.run", terminal=False)], fails=True)
        assert not load(tmp_path / "a.run").complete
        assert_nothing_is_left()


class TestTransformers:
    """A small model of two numbers under the Trainer of transformers."""

    def train(self, folder: Path, callbacks: list[Any], fails_at: int | None = None) -> Any:
        transformers = pytest.importorskip("transformers")

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)

            def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
                return {"loss": (self.layer(x) - labels).square().mean()}

        class Data(torch.utils.data.Dataset):
            def __len__(self) -> int:
                return 600

            def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
                if index == fails_at:
                    raise ZeroDivisionError
                return {"x": torch.full((4,), index / 600), "labels": torch.ones(1)}

        torch.manual_seed(0)
        model = Model()
        settings = transformers.TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=1,
            per_device_train_batch_size=2,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        transformers.Trainer(model, settings, train_dataset=Data(), callbacks=callbacks).train()
        return model.state_dict()

    @pytest.mark.filterwarnings("ignore")
    def test_it_learns_what_it_learns_alone(self, tmp_path: Path) -> None:
        alone = self.train(tmp_path, [])
        from hotloop.watch.transformers import WatchCallback

        watched = self.train(tmp_path, [WatchCallback(run=tmp_path / "a.run", terminal=False)])
        assert all(torch.equal(alone[name], watched[name]) for name in alone)
        assert load(tmp_path / "a.run").complete
        assert_nothing_is_left()

    @pytest.mark.filterwarnings("ignore")
    def test_it_ends_with_an_error_of_the_training(self, tmp_path: Path) -> None:
        transformers = pytest.importorskip("transformers")
        from hotloop.watch.transformers import WatchCallback

        step = transformers.Trainer.training_step
        callback = WatchCallback(run=tmp_path / "a.run", terminal=False)
        with pytest.raises(ZeroDivisionError):
            self.train(tmp_path, [callback], fails_at=300)
        assert transformers.Trainer.training_step is step
        assert not load(tmp_path / "a.run").complete
        assert_nothing_is_left()
