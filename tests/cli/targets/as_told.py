"""A script that knows nothing of hotloop, and does to its process what it is told to.

The words of its command line are names of functions below: those that are called before its loop,
and, with the number of a step behind a colon, those that are called at that step.
"""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gymnasium


class Waits(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        time.sleep(0.002)
        return 0, 0.0, False, False, {}


class Unusual(BaseException):
    pass


def said(word):
    print(word, flush=True)


def exit_3():
    sys.exit(3)


def exit_at_once():
    os._exit(0)


def exit_at_once_5():
    os._exit(5)


def exit_at_once_in_a_thread():
    threading.Thread(target=os._exit, args=(0,)).start()


def raise_unusual():
    raise Unusual("planted")


def ask():
    print("hello", input("name? "), flush=True)


def fork_that_ends():
    if os.fork() == 0:
        raise SystemExit


def fork_that_fails():
    if os.fork() == 0:
        raise ValueError("planted in a child")


def fork_that_exits():
    if os.fork() == 0:
        os._exit(0)


def fork_that_goes_on():
    os.fork()


def fork_that_stays():
    if os.fork() == 0:
        time.sleep(1000)


def program_that_stays():
    subprocess.Popen(["sleep", "1000"])


def work(how):
    said(f"worked by {how}")


def workers():
    for how in ("fork", "spawn"):
        process = multiprocessing.get_context(how).Process(target=work, args=(how,))
        process.start()
        process.join()


def replace_output():
    sys.stdout = io.StringIO()


def close_output():
    sys.stdout.close()


def close_descriptor():
    os.close(1)


def close_all_descriptors():
    os.closerange(0, 3)


def close_errors():
    sys.stderr.close()


def alarm():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)


def handle_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: said("handled"))
        assert signal.getsignal(number).__name__ == "<lambda>"


def few_frames():
    sys.setrecursionlimit(150)


def forget_modules():
    for name in [each for each in sys.modules if each.startswith(("hotloop", "json"))]:
        del sys.modules[name]


def leave_folder():
    os.chdir(tempfile.mkdtemp())
    Path.cwd().rmdir()


def sign():
    # In the temporary folder, which is not redirected.
    Path(os.environ["SIGN"]).touch()


def for_ever():
    while True:
        try:
            train([])
        except BaseException as error:
            said(f"caught {type(error).__name__}")


def train(at_steps):
    env = Waits()
    env.reset()
    number = 0
    while True:
        number += 1
        for name, step in at_steps:
            if int(step) == number:
                globals()[name]()
        env.step(0)


if __name__ == "__main__":
    words = [word.partition(":") for word in sys.argv[1:]]
    for name, colon, _ in words:
        if not colon:
            globals()[name]()
    train([(name, step) for name, colon, step in words if colon])
