"""Traces with OpenTelemetry, over clients, servers, workers and sandboxes."""
