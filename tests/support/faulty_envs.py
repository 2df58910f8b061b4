"""A sound env, a sound vector env, and one with each fault that the conformance kit is to name."""

import os
import subprocess
import threading
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Sound(gymnasium.Env):
    """A walk that ends after a few steps; every fault below changes one thing in it."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    observation_space = spaces.Box(-100, 100, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 9))
        self.place = self.np_random.normal(size=3).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.left -= 1
        self.place = self.place + np.float32(action)
        self.place += self.np_random.normal(size=3).astype(np.float32)
        terminated = bool(self.left == 0 and self.place[0] > 5)
        return self.place.copy(), 1.5, terminated, self.left <= 0 and not terminated, {"x": 1.0}


class Driven(Sound):
    """Sound, with actions of a Box."""

    action_space = spaces.Box(-1, 1, (3,), np.float32)

    def step(self, action):
        return super().step(float(action.sum()))


class OwnBuffer(Sound):
    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        self.place = obs
        return self.place, info

    def step(self, action):
        buffer = self.place
        _, *rest = super().step(action)
        buffer[:] = self.place
        self.place = buffer
        return buffer, *rest


class WideDtype(Sound):
    def step(self, action):
        obs, *rest = super().step(action)
        return obs.astype(np.float64), *rest


class WrongShape(Sound):
    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return obs[None], info


class OutOfBounds(Sound):
    observation_space = spaces.Box(-0.5, 0.5, (3,), np.float32)


class NotANumber(Sound):
    def step(self, action):
        obs, *rest = super().step(action)
        obs[1] = np.nan
        return obs, *rest


class ArrayReward(Sound):
    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, np.array([reward]), *rest


class NanReward(Sound):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, float("nan"), *rest


class WholeFlags(Sound):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, int(terminated), truncated, info


class NoInfo(Sound):
    def step(self, action):
        return *super().step(action)[:4], None


class ObsOnlyReset(Sound):
    def reset(self, **kwargs):
        return super().reset(**kwargs)[0]


class FourValues(Sound):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class OldSignature(Sound):
    def reset(self, seed=None):
        return super().reset(seed=seed)


class NoActionSpace(Sound):
    action_space = None


class BreaksDown(Sound):
    def step(self, action):
        if self.left == 2:
            raise ZeroDivisionError("of all things")
        return super().step(action)


class GlobalNoise(Sound):
    def step(self, action):
        obs, *rest = super().step(action)
        return obs + np.random.default_rng().normal(size=3).astype(np.float32), *rest


class KeepsState(Sound):
    episodes = 0

    def reset(self, **kwargs):
        self.episodes += 1
        obs, info = super().reset(**kwargs)
        return obs + np.float32(self.episodes), info


class SeedsItself(Sound):
    def reset(self, *, seed=None, options=None):
        if seed is None:
            seed = int(np.random.default_rng().integers(2**31))
        return super().reset(seed=seed)


class RepeatsItself(Sound):
    seed = 0

    def reset(self, *, seed=None, options=None):
        self.seed = self.seed if seed is None else seed
        return super().reset(seed=self.seed)


class UnusedSeed(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=0)


class NumpyActionsOnly(Sound):
    def step(self, action):
        return super().step(action.item())


class LowSamples(spaces.Discrete):
    """Never samples its last action."""

    def sample(self, *args, **kwargs):
        return np.int64(min(super().sample(*args, **kwargs), self.start + self.n - 2))


class TooFewActions(Sound):
    action_space = LowSamples(3)

    def step(self, action):
        return super().step([0, 1][action])


class IntsAreSpecial(Sound):
    def step(self, action):
        return super().step(2 if type(action) is int else action)


class WritesActions(Driven):
    def step(self, action):
        action *= 0.5
        return super().step(action)


class ClosesOnce(Sound):
    closed = False

    def close(self):
        if self.closed:
            raise OSError("closed already")
        self.closed = True


class LeavesThread(Sound):
    def __init__(self):
        self.end = threading.Event()  # which is the test's to set
        threading.Thread(target=self.end.wait, name="left over", daemon=True).start()


class LeavesProcess(Sound):
    def __init__(self):
        self.child = subprocess.Popen(["sleep", "600"])  # which is the test's to kill


class UndeclaredMode(Sound):
    render_mode = "human"


class DiesBeforeReset(Sound):
    def step(self, action):
        if not hasattr(self, "left"):
            os._exit(9)
        return super().step(action)


class HangsAfterEnd(Sound):
    def step(self, action):
        if self.left <= 0:
            time.sleep(60)
        return super().step(action)


class NeverEnds(Sound):
    def step(self, action):
        self.left += 1
        return super().step(action)


def vector(changed=None, mode=AutoresetMode.NEXT_STEP, env=Sound, **kwargs):
    """A maker of a sync vector env, `changed` by a subclass."""
    return lambda: (changed or SyncVectorEnv)([env] * 3, autoreset_mode=mode, **kwargs)


def altered(change, on="step"):
    """A vector env whose returned values go through `change(env, values)`."""

    class Altered(SyncVectorEnv):
        def step(self, actions):
            moved = super().step(actions)
            return change(self, moved) if on == "step" else moved

        def reset(self, **kwargs):
            returned = super().reset(**kwargs)
            return change(self, returned) if on == "reset" else returned

    return Altered


class OwnRewards(SyncVectorEnv):
    rewards = None

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        if self.rewards is None:
            self.rewards = np.zeros_like(reward)
        self.rewards[:] = reward
        return obs, self.rewards, *rest


class ActsOnReset(SyncVectorEnv):
    """Resets on the next step, and steps on in the same one."""

    def step(self, actions):
        pending = self._autoreset_envs.copy()
        obs, reward, terminated, truncated, infos = super().step(actions)
        for i in np.flatnonzero(pending):
            obs[i] = self.envs[i].step(actions[i])[0]
        return obs, reward, terminated, truncated, infos


class PaysOnReset(SyncVectorEnv):
    def step(self, actions):
        pending = self._autoreset_envs.copy()
        obs, reward, *rest = super().step(actions)
        return obs, np.where(pending, 1.0, reward), *rest


class FlagsOnReset(SyncVectorEnv):
    def step(self, actions):
        pending = self._autoreset_envs.copy()
        obs, reward, terminated, truncated, infos = super().step(actions)
        return obs, reward, terminated | pending, truncated, infos


class ShowsFinal(SyncVectorEnv):
    """In the same-step mode, shows the old episode's last observation."""

    def step(self, actions):
        obs, reward, terminated, truncated, infos = super().step(actions)
        for i in np.flatnonzero(terminated | truncated):
            obs[i] = infos["final_obs"][i]
        return obs, reward, terminated, truncated, infos


class MaskIgnored(SyncVectorEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class MaskDisturbs(SyncVectorEnv):
    """A masked reset draws from the generators of the others."""

    def reset(self, *, seed=None, options=None):
        if options and "reset_mask" in options:
            for i in np.flatnonzero(~options["reset_mask"]):
                self.envs[i].np_random.normal()
        return super().reset(seed=seed, options=options)


class OneSeed(SyncVectorEnv):
    def reset(self, *, seed=None, options=None):
        if isinstance(seed, int):
            seed = [seed] * self.num_envs
        return super().reset(seed=seed, options=options)


class OtherReward(SyncVectorEnv):
    """Pays env 1 what env 0 earned."""

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        reward[1] = reward[0]
        return obs, reward, *rest


class ForgetsSeed(SyncVectorEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(options=options)


class CloseOnceVector(SyncVectorEnv):
    def close(self, **kwargs):
        if self.closed:
            raise OSError("closed already")
        super().close(**kwargs)


class Ready(SyncVectorEnv):
    """Partial batches, first sent first served, in next-step mode."""

    batch_size = 2
    busy_is_refused = True
    tells_ids = True
    swaps_rows = False
    counts_rows = False

    def async_reset(self, seed=None):
        obs, _ = self.reset(seed=seed)
        self.due = [(i, (obs[i], 0.0, False, False)) for i in range(self.num_envs)]
        self.ended = [False] * self.num_envs

    def send(self, actions, env_ids):
        if self.busy_is_refused and {i for i, _ in self.due} & set(env_ids.tolist()):
            raise ValueError("still stepping")
        places = sorted(env_ids.tolist()) if self.counts_rows else env_ids.tolist()
        for i, action in zip(places, actions, strict=True):
            env = self.envs[i]
            row = (env.reset()[0], 0.0, False, False) if self.ended[i] else env.step(action)[:4]
            self.ended[i] = row[2] or row[3]
            self.due.append((i, row))

    def recv(self):
        batch, self.due = self.due[: self.batch_size], self.due[self.batch_size :]
        ids = np.array([i for i, _ in batch])
        obs, *rest = (np.array(column) for column in zip(*(row for _, row in batch), strict=True))
        infos = {"env_id": ids[::-1] if self.swaps_rows else ids} if self.tells_ids else {}
        return obs, *rest, infos


class BusyAccepted(Ready):
    busy_is_refused = False


class IdsUntold(Ready):
    tells_ids = False


class RowsSwapped(Ready):
    swaps_rows = True


class IdsRotated(Ready):
    """Calls every env by the next one's number, and keeps to it."""

    def send(self, actions, env_ids):
        super().send(actions, (env_ids - 1) % self.num_envs)

    def recv(self):
        *moved, infos = super().recv()
        return *moved, {"env_id": (infos["env_id"] + 1) % self.num_envs}


class ActionsByPlace(Ready):
    counts_rows = True


class Pair(Sound):
    """Observations of two numbers, so that a batch of three has another shape than its rows."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return obs[:2], info

    def step(self, action):
        obs, *rest = super().step(action)
        return obs[:2], *rest


class Paid(Sound):
    """Rewards that differ between envs."""

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, float(obs[0]), *rest


class NoFinalInfo(SyncVectorEnv):
    def step(self, actions):
        moved = super().step(actions)
        moved[4].pop("final_info", None)
        moved[4].pop("_final_info", None)
        return moved


def declaring(mode):
    """A vector env whose metadata say `mode`, whatever it does."""

    class Declaring(SyncVectorEnv):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.metadata = {**self.metadata, "autoreset_mode": mode}

    return Declaring
