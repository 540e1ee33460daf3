"""ink2tex: handwritten mathematics to LaTeX."""

__version__ = "0.1.0"
