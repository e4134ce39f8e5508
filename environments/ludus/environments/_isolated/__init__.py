"""Run a policy's Python code on hidden inputs in a sandbox; the results are compared outside."""
