"""A module of the user that needs one which is not installed."""

import not_installed_anywhere  # noqa: F401
