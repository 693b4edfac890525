"""Arms of a comparison at equal budgets, on anybody's network and training: what ``ranp compare`` runs and shows."""

from ranp.comparing.compare import compare
from ranp.comparing.comparison import Comparison
from ranp.comparing.subject import Subject, Training

__all__ = ["Comparison", "Subject", "Training", "compare"]
