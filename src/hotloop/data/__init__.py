"""What engines hand to learners: trees of arrays, fragments, and the memory that they lie in."""

from hotloop.data.fragment import Fragment, FragmentSpec
from hotloop.data.layout import Layout, Tree, leaves, tree_map
from hotloop.data.shared import SharedBlock

__all__ = ["Fragment", "FragmentSpec", "Layout", "SharedBlock", "Tree", "leaves", "tree_map"]
