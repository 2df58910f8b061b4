"""The command line: one file per verb, loaded when it is called."""

import importlib
import importlib.util
import sys

from hotloop.errors import PlatformError, did_you_mean, expect_linux

VERBS = {
    "benchmark": "how fast is it, and where does the time go?",
    "profile": "what do profilers say of its stages: time, memory, arithmetic, bytes?",
    "simplify": "how fast could it be, and what holds it back?",
    "optimize": "which lever helps, measured?",
    "plan": "what would a cluster bring, what limits it, and what would it cost?",
    "compare": "which of two is faster: targets, settings, commits, commands?",
    "gate": "is a version slower than its baseline? the exit code says so",
    "repeat": "did it help, was it worth it, are we done? `repeat try` notes a change",
    "train": "train a learner of hotloop's own, such as ppo:CartPole-v1",
    "evaluate": "how good is the policy of a checkpoint?",
    "simulate": "what becomes of a model, and how far do its runs differ?",
    "calibrate": "which parameters of a model meet what was observed in each step?",
    "report": "draw saved runs again, in the terminal or as a page",
    "doctor": "what can this machine measure?",
}
NEED_TORCH = ("train", "evaluate", "simulate", "calibrate")

USAGE = """\
usage: hotloop VERB [options]

How fast your training loop is, how fast it could be, and what holds it back.

{verbs}

A TARGET is one of
{built_in}
  file.py:function    a function of yours that returns a hotloop.Loop
  file.py:MODEL       a model of yours, a hotloop.sim.Model or ModelSpec
  module:NAME         either of them, importable
  model.yaml          a model of yours as a file
  script.py           a script of yours, as it stands (arguments after --);
                      also -m package.module, or an installed console script

hotloop VERB --help shows a verb's options.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; returns the exit code: 0 done, 1 failed or not solved, 2 wrong usage, 130
    interrupted.

    Of a gate also 3, slower than its baseline, and 4, cannot say.
    """
    own_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help"):
        print(usage(), end="")
        return 0 if arguments else 2
    if verb == "--version":
        from importlib.metadata import version

        print(version("hotloop"))
        return 0
    if verb not in VERBS:
        hint = did_you_mean(verb, VERBS) or "."
        print(f"hotloop: no verb {verb!r}{hint} It knows: {', '.join(VERBS)}", file=sys.stderr)
        return 2
    try:
        expect_linux()
    except PlatformError as error:
        print(f"hotloop: {error}", file=sys.stderr)
        return 1
    if verb in NEED_TORCH and importlib.util.find_spec("torch") is None:
        print(f"hotloop: {verb} needs torch: pip install 'hotloop[torch]'", file=sys.stderr)
        return 1
    from hotloop.cli.guard import guarded, leave

    code = guarded(lambda: int(importlib.import_module(f"hotloop.cli.{verb}").run(arguments[1:])))
    return leave(code) if own_process else code


def usage() -> str:
    """The text of `hotloop --help`."""
    from hotloop.built_in import BUILT_IN

    lines = "\n".join(f"  {verb:<10} {what}" for verb, what in VERBS.items())
    entries = (f"  {each.example:<19} {each.about}" for each in BUILT_IN.values())
    return USAGE.format(verbs=lines, built_in="\n".join(entries))


if __name__ == "__main__":
    sys.exit(main())
