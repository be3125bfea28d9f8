"""Measurements of Pinfold beside what else moves bytes: `python -m pinfold.bench`."""
