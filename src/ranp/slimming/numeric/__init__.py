"""The numeric check: the slim network against the full one with its removed channels silenced, number by number.

It knows nothing of the rules, so it catches what they get wrong.
"""

from ranp.slimming.numeric.comparing import Finding, compare_numbers

__all__ = ["Finding", "compare_numbers"]
