"""Evaluation of policies: calibration, which measures how hard tasks are for a policy."""
