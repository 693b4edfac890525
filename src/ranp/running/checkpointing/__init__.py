"""Activation checkpointing for any network: what its blocks compute is dropped, and computed again when needed.

A training step keeps what every operator needs for its backward pass. Inside ``checkpointed`` only the inputs of
certain modules, the blocks, are kept; when the backward pass comes to a block, the block runs once more. This costs
about one more forward pass of time. Gradients, running statistics and random numbers are those of an ordinary step.
"""

from ranp.running.checkpointing.choosing import blocks
from ranp.running.checkpointing.running import checkpointed

__all__ = ["blocks", "checkpointed"]
