"""What holds for every test."""

import signal

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some are about.
signal.signal(signal.SIGINT, signal.default_int_handler)
