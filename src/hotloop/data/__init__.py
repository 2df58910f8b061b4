"""Data between engines and learners: trees of arrays, fragments, and their shared memory."""

from hotloop.data.fragment import Fragment, FragmentSpec
from hotloop.data.layout import Layout, Tree, leaves, tree_map
from hotloop.data.shared import SharedBlock

__all__ = ["Fragment", "FragmentSpec", "Layout", "SharedBlock", "Tree", "leaves", "tree_map"]
