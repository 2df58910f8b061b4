"""The table of backends: a new entry is all that a new backend takes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from hotloop.cli.benchmark import run as benchmark
from hotloop.envs import auto
from hotloop.envs.backends import BACKENDS, Backend, settings_of
from hotloop.envs.make import make_vec
from hotloop.envs.serial import SerialVectorEnv
from hotloop.envs.workload import Candidate, Variant
from hotloop.errors import SettingError, TargetError
from hotloop.testing.synthetic import SyntheticEnv


class PlantedVectorEnv(SerialVectorEnv):
    """A backend that nothing but this file knows."""

    def __init__(self, fns, *, num_workers=1, autoreset_mode=None, colour="red"):
        super().__init__(fns, autoreset_mode=autoreset_mode)
        self.num_workers, self.colour = num_workers, colour


PLANTED = Backend(
    load=lambda: PlantedVectorEnv,
    variants=lambda work: [Variant("planted", 1), Variant("planted", work.num_makers)],
    candidates=lambda work: [Candidate(Variant("planted", 2), 1e-12)],
    workers="planted workers",
)


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.setitem(BACKENDS, "planted", PLANTED)


def test_a_planted_backend_is_made_by_make_vec(planted):
    envs = make_vec(SyntheticEnv, 3, backend="planted", num_workers=2, colour="blue")
    assert type(envs) is PlantedVectorEnv
    assert (envs.num_envs, envs.num_workers, envs.colour) == (3, 2, "blue")
    envs.close()
    with pytest.raises(SettingError, match=r"color: backend 'planted' has no.*mean 'colour'\?"):
        make_vec(SyntheticEnv, 3, backend="planted", color="blue")
    with pytest.raises(SettingError, match="splits: backend 'planted' has no such setting"):
        make_vec(SyntheticEnv, 2, backend="planted", splits=2)
    with pytest.raises(SettingError, match="got 'plantet'; did you mean 'planted'"):
        make_vec(SyntheticEnv, 2, backend="plantet")


def test_a_planted_backend_is_considered_by_auto(planted, monkeypatch):
    monkeypatch.setattr(auto, "RACE_S", 0.0)  # the expectation decides
    envs = make_vec(SyntheticEnv, 4)
    assert type(envs) is PlantedVectorEnv
    assert (envs.choice.backend, envs.num_workers) == ("planted", 2)
    assert "envs run in 2 planted workers, 2 envs each" in envs.choice.reason
    envs.close()


def test_a_planted_backend_races(planted, monkeypatch):
    made = []
    slow = Backend(
        load=lambda: lambda fns, **given: made.append(given) or PlantedVectorEnv(fns, **given),
        variants=PLANTED.variants,
        candidates=lambda work: [Candidate(Variant("planted", 1), work.num_makers * work.work_s)],
        workers="planted workers",
    )
    monkeypatch.setitem(BACKENDS, "planted", slow)
    monkeypatch.setattr(auto, "RACE_S", 0.05)
    envs = make_vec(SyntheticEnv, 2)
    assert {"num_workers": 1} in made
    assert "planted x 1" in envs.choice.reason
    envs.close()


def test_a_planted_backend_is_measured_by_the_command(planted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["--backends", "planted", "--num-envs", "2", "--seconds", "0.03", "--json"]
    assert benchmark(["CartPole-v1", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["backend"], row["num_workers"]) for row in rows] == [
        ("planted", 1),
        ("planted", 2),
    ]
    assert all(row["sps"]["value"] > 0 for row in rows)


def test_the_table_and_what_reads_it_load_neither_ray_nor_torch():
    code = (
        "import sys, hotloop.envs.backends, hotloop.envs.sweep, hotloop.envs\n"
        "sys.exit(any(name in sys.modules for name in ('ray', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_are_those_of_the_class():
    assert {"num_workers", "restarts", "timeout_s"} <= settings_of(["process"])
    assert settings_of(["serial"]) == settings_of(["native"])
    assert settings_of(["serial", "process"]) > settings_of(["serial"])


def test_native_is_the_env_of_the_id():
    envs = make_vec("CartPole-v1", 4, backend="native")
    obs, _ = envs.reset(seed=3)
    single = make_vec("CartPole-v1", 4, backend="serial")
    np.testing.assert_array_equal(obs.shape, single.reset(seed=3)[0].shape)
    envs.step(np.zeros(4, np.int64))
    envs.close()
    single.close()
    with pytest.raises(TargetError, match="no vector env of its own"):
        make_vec("Acrobot-v1", 2, backend="native")
    with pytest.raises(TargetError, match="expected the id of an env"):
        make_vec(SyntheticEnv, 2, backend="native")
    with pytest.raises(SettingError, match="num_workers: backend 'native' has none, got 2"):
        make_vec("CartPole-v1", 2, backend="native", num_workers=2)
