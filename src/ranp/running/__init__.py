"""How a network is copied, called, watched and left untouched: below all steps."""
