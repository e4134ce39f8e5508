"""Chromium in a sandbox, driven over its DevTools pipe."""
