"""Network access of sandboxes: the egress proxy, its allowlist, and listeners inside network namespaces."""
