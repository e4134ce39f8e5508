from functools import partial

from ludus.sandbox import SandboxSettings, find_provider
from ludus.testing.sandboxes import SandboxConformance


class TestUnsafeLocal(SandboxConformance):
    provider = partial(find_provider, "unsafe-local")
    settings = SandboxSettings(provider="unsafe-local")
    cannot = {
        "isolation": "commands run as the server's user",
        "limit: disk": "files are on the machine's own disk",
    }
