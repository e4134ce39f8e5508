"""The tools with which each domain changes its records, and looks for what belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from ludus.environments._arguments import filled, read_date
from ludus.environments.support_desk.desk import Amount, DeskTools, Short, shown
from ludus.server import ToolError, tool


class ShopTools(DeskTools):
    """The tools of a shop."""

    @tool(inline=True)
    def refund_order(self, order_id: Short, amount: Amount, to: Literal["card", "credit"]) -> str:
        """Pay back money for a delivered order.

        Args:
            order_id: the id of the order.
            amount: the money to pay back.
            to: where it goes: to the card, or to store credit.
        """
        return self.desk.change("refund_order", order_id, amount=amount, to=to)

    @tool(inline=True)
    def cancel_order(self, order_id: Short, refund: Amount) -> str:
        """Cancel an order that was not shipped yet, and pay money back to the card.

        Args:
            order_id: the id of the order.
            refund: the money to pay back.
        """
        return self.desk.change("cancel_order", order_id, refund=refund)

    @tool(inline=True)
    def change_address(self, order_id: Short, address: Short, arrives: Short) -> str:
        """Change the address to which an order is delivered.

        Args:
            order_id: the id of the order.
            address: the new address, as the customer gives it.
            arrives: the new day of delivery, as YYYY-MM-DD.
        """
        to, day = filled(address, "address").rstrip("."), read_date(arrives, "arrives")
        return self.desk.change("change_address", order_id, address=to, arrives=day)


class AirlineTools(DeskTools):
    """The tools of an airline."""

    @tool(inline=True)
    def find_flights(self, origin: Short, destination: Short, day: Short) -> str:
        """Find the flights between two cities on a day, with their free seats.

        Args:
            origin: the city where it starts.
            destination: the city where it lands.
            day: the day, as YYYY-MM-DD.
        """
        rows = self.desk.store.rows(
            "SELECT * FROM flights WHERE lower(origin) = ? AND lower(destination) = ? AND day = ? ORDER BY leaves",
            origin.strip().lower(), destination.strip().lower(), read_date(day, "day"),
        )  # fmt: skip
        return "\n".join(shown(row) for row in rows) or "There is no such flight on this day."

    @tool(inline=True)
    def cancel_booking(self, booking_id: Short, refund: Amount) -> str:
        """Cancel a booking, and pay money back.

        Args:
            booking_id: the id of the booking.
            refund: the money to pay back.
        """
        return self.desk.change("cancel_booking", booking_id, refund=refund)

    @tool(inline=True)
    def change_flight(self, booking_id: Short, flight_id: Short, fee: Amount) -> str:
        """Move a booking to another flight.

        Args:
            booking_id: the id of the booking.
            flight_id: the id of the new flight, which find_flights shows.
            fee: the fee for all passengers together; 0 if there is none.
        """
        flight = flight_id.strip().upper()
        if self.desk.store.get("flights", flight) is None:
            raise ToolError(f"There is no flight {flight[:40]!r}. find_flights shows ids, such as F-1234.")
        return self.desk.change("change_flight", booking_id, flight_id=flight, fee=fee)

    @tool(inline=True)
    def add_bags(self, booking_id: Short, bags: Amount, charge: Amount) -> str:
        """Add bags to a booking.

        Args:
            booking_id: the id of the booking.
            bags: how many bags are added to those that it has.
            charge: the price of all added bags together.
        """
        return self.desk.change("add_bags", booking_id, bags=bags, charge=charge)


class TelecomTools(DeskTools):
    """The tools of a phone company."""

    @tool(inline=True)
    def find_outages(self, city: Short) -> str:
        """Find the outages of the network in a city.

        Args:
            city: the city.
        """
        rows = self.desk.store.rows("SELECT * FROM outages WHERE lower(city) = ? ORDER BY day", city.strip().lower())
        return "\n".join(shown(row) for row in rows) or "There was no outage in this city."

    @tool(inline=True)
    def change_plan(self, line_id: Short, plan: Short, starts: Short) -> str:
        """Change the plan of a line.

        Args:
            line_id: the id of the line.
            plan: the name of the new plan.
            starts: the day on which it begins, as YYYY-MM-DD.
        """
        name = _plan(self, plan)
        return self.desk.change("change_plan", line_id, plan=name, starts=read_date(starts, "starts"))

    @tool(inline=True)
    def credit_bill(self, line_id: Short, amount: Amount) -> str:
        """Give a credit on the next bill of a line.

        Args:
            line_id: the id of the line.
            amount: the credit.
        """
        return self.desk.change("credit_bill", line_id, amount=amount)

    @tool(inline=True)
    def suspend_line(self, line_id: Short, until: Short) -> str:
        """Suspend a line from today.

        Args:
            line_id: the id of the line.
            until: the day until which it is suspended, as YYYY-MM-DD.
        """
        return self.desk.change("suspend_line", line_id, until=read_date(until, "until"))


class MediaTools(DeskTools):
    """The tools of a club of subscriptions."""

    @tool(inline=True)
    def refund_charge(self, subscription_id: Short, amount: Amount) -> str:
        """Pay back money of the last charge of a subscription.

        Args:
            subscription_id: the id of the subscription.
            amount: the money to pay back.
        """
        return self.desk.change("refund_charge", subscription_id, amount=amount)

    @tool(inline=True)
    def pause_subscription(self, subscription_id: Short, until: Short, next_charge: Short) -> str:
        """Pause a subscription from today.

        Args:
            subscription_id: the id of the subscription.
            until: the last day of the pause, as YYYY-MM-DD.
            next_charge: the new day of the next charge, as YYYY-MM-DD.
        """
        ends, charge = read_date(until, "until"), read_date(next_charge, "next_charge")
        return self.desk.change("pause_subscription", subscription_id, until=ends, next_charge=charge)

    @tool(inline=True)
    def change_plan(self, subscription_id: Short, plan: Short, price: Amount) -> str:
        """Change the plan of a subscription from its next charge.

        Args:
            subscription_id: the id of the subscription.
            plan: the name of the new plan.
            price: the new monthly price.
        """
        return self.desk.change("change_plan", subscription_id, plan=_plan(self, plan), price=price)


def _plan(tools: DeskTools, name: str) -> str:
    """Return the name of a plan as the policy writes it.

    Raises:
        ToolError: there is no such plan.
    """
    plans = tools.desk.case.policy.words["plans"]
    found = next((plan for plan in plans if plan.lower() == name.strip().lower()), None)
    if found is None:
        raise ToolError(f"plan is one of {', '.join(plans)}, not {name.strip()[:40]!r}.")
    return found


_TOOLS: Final[Mapping[str, tuple[type[DeskTools], tuple[str, ...]]]] = {
    "shop": (ShopTools, ("refund_order", "cancel_order", "change_address")),
    "airline": (AirlineTools, ("find_flights", "cancel_booking", "change_flight", "add_bags")),
    "telecom": (TelecomTools, ("find_outages", "change_plan", "credit_bill", "suspend_line")),
    "media": (MediaTools, ("refund_charge", "pause_subscription", "change_plan")),
}


def tools_of(domain: str, environment: Any) -> list[Callable[..., Any]]:
    """Return the tools of a domain for an episode."""
    kind, names = _TOOLS[domain]
    made = kind(environment)
    return [getattr(made, name) for name in names]
