"""Chat completions: what harnesses send and get, and the samples that are recorded."""

from __future__ import annotations

import json
from typing import Any

from gateway_play import play
