from ludus.integrations.verifiers import LudusEnv, LudusHarness, LudusTaskset

__all__ = ["LudusEnv", "LudusHarness", "LudusTaskset"]
