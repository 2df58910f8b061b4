"""AgentTorch: populations in folders of its layout, read as they are.

`hotloop.populations.load` uses it for folders that `is_folder` recognises.
"""

from hotloop.integrations.agenttorch.folder import is_folder, read_folder

__all__ = ["is_folder", "read_folder"]
