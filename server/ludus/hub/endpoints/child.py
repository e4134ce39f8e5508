"""The server process of an endpoint.

It is a worker of the gateway (`ludus.server.workers.child`) with another parent: in a sandbox it answers on standard
output, because it inherits nothing else, and its spans go there, too. What environments write to standard output goes
to the log.
"""

from __future__ import annotations

import os
import sys

from ludus.common.heap import uncollected
from ludus.hub.endpoints.places import SOCKET
from ludus.hub.endpoints.span_lines import SERVICE, SPANS, span_writer


def main() -> int:
    """Serve until a signal, and return the exit code."""
    with uncollected():  # a fifth of the CPU of a start would go into visiting what imports have made
        from ludus.hub.endpoints.brokered import use_broker
        from ludus.hub.endpoints.passes import Passes, capability_key
        from ludus.server.workers.child import serve_order
        from ludus.server.workers.orders import Order
        from ludus.server.workers.parent import Answers, read_orders

        if os.environ.pop(SPANS, None):
            from ludus.telemetry.tracing import use_exporter

            use_exporter(SERVICE, span_writer(os.dup(1)))
    said = Answers(os.dup(1))
    os.dup2(2, 1)
    use_broker(SOCKET)
    order = Order.model_validate_json(sys.stdin.buffer.readline())
    return serve_order(order, read_orders(), said, Passes(order.secret), capability_key(order.secret))


if __name__ == "__main__":
    sys.exit(main())
