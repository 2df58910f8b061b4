"""A learner of hotloop under the rule; the settings are its own, with its name as `algorithm`.

Where actors act on their own, a policy is kept when it is due to be judged, and judged later, many
at once: resting for every evaluation would take away the lag that they work with.
"""

from typing import Any

from rule import Greedy, asked
from shares import Shares

from hotloop.learn.algorithms import learner_type
from hotloop.learn.learner import policy_for

# Where actors act on their own: the policies that wait to be judged, and after how many env steps
# a rest is too short to matter, so that fewer wait.
AT_ONCE, REST_EVERY = 12, 50_000

seed, watch, given = asked()
kind = learner_type(given.pop("algorithm"))
settings = kind.settings_type(**given, seed=seed, env_id=watch.rule.env_id)
learner: Any = kind(settings)
spaces = watch.envs[0].observation_space, watch.envs[0].action_space
judged = policy_for(settings, *spaces)


def greedy_of(state: dict[str, Any]) -> Greedy:
    judged.load_state_dict(state)
    return judged.greedy


ahead, watch.alone = 0, settings.backend == "serial"
if not kind.synchronous and settings.backend != "serial":
    # The actors' processes have started, and hold all fragments that they may have under way.
    with learner.paused():
        ahead = learner.actors.collector.waiting * settings.batch_steps // settings.num_actors
at_once = min(AT_ONCE, max(1, REST_EVERY // watch.rule.evaluate_every))
if kind.synchronous:
    at_once = 1
watch.start(ahead)
shares = Shares()
while not watch.over:
    learner.iterate()
    watch.mark(learner.progress.env_steps, learner.policy.state_dict)
    if len(watch.waiting) >= at_once or watch.over:
        with learner.paused():
            watch.settle(greedy_of)
watch.report(**shares.read())
learner.close()
