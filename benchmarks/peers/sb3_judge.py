"""The rule inside of a training of Stable-Baselines3, or of what calls back as it does."""

from rule import Greedy, Watch
from stable_baselines3.common.callbacks import BaseCallback


class Judge(BaseCallback):
    """Looks at the policy whenever updates have ended, which is when a rollout begins."""

    def __init__(self, watch: Watch, greedy: Greedy) -> None:
        super().__init__()
        self._watch, self._greedy = watch, greedy

    def _on_training_start(self) -> None:
        self._watch.start()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps and not self._watch.over:
            self._watch.judge(self.num_timesteps, self._greedy)

    def _on_step(self) -> bool:
        return not self._watch.over

    def _on_training_end(self) -> None:
        if not self._watch.over:
            self._watch.judge(self.num_timesteps, self._greedy)
