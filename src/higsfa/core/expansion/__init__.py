"""Nonlinear expansions: terms, their text form, and what they compute."""
