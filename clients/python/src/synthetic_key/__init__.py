"""Synthetic partition keys from one definition: built for an item, validated against an item, and enumerated
for a read. The same definition yields the same keys as the Rust crate and the JavaScript package."""

from .build import Definition, Key
from .definition import DefinitionError
from .errors import KeyError_ as SyntheticKeyError
from .murmur3 import x86_32

__all__ = ["Definition", "DefinitionError", "Key", "SyntheticKeyError", "x86_32"]
