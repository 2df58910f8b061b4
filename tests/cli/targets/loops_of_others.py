"""A module of the user that needs one whose name its own begins with."""

import loops_of  # noqa: F401
