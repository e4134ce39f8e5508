"""Sandboxes of services elsewhere, each through the service's own client package."""
