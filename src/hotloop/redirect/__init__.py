"""A throw-away run of a user's script: what it writes goes elsewhere, and its trackers are off."""

from hotloop.redirect.redirect import Redirect

__all__ = ["Redirect"]
