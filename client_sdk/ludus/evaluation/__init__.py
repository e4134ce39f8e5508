"""Evaluation of policies: how hard tasks are, and which of them separate policies."""
