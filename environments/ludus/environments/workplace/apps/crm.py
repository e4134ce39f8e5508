"""CRM: customers, deals and what was done about them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from ludus.environments._arguments import filled, read_date
from ludus.environments.workplace.apps.desk import App, Long, Page, Short, listed, matching
from ludus.environments.workplace.world.store import Row
from ludus.server import ToolError, tool

Stage = Literal["lead", "qualified", "proposal", "negotiation", "won", "lost"]
AnyStage = Literal["any", "open", "lead", "qualified", "proposal", "negotiation", "won", "lost"]
_CUSTOMER: Final = "{id} | {name} | {industry} | {city} | tier {tier} | account manager {owner_name} ({owner})"
_DEAL: Final = (
    "{id} | {title} | {stage} | {amount} EUR | discount {discount} % | closes {close_date} | {owner_name} ({owner})"
)
_DEALS: Final = "SELECT d.*, p.name AS owner_name FROM deals d JOIN employees p ON p.id = d.owner WHERE "


class CrmApp(App):
    """Look customers up, and keep deals up to date."""

    @tool
    def crm_customers(self, query: Short, page: Page = 1) -> str:
        """Find customers by words in their name, industry, city, tier or account manager.

        Args:
            query: the words.
            page: the page, from 1; ten customers each.
        """
        condition, values = matching(filled(query, "query"), ("c.name", "c.industry", "c.city", "c.tier", "p.name"))
        rows = self.desk.store.rows(
            "SELECT c.*, p.name AS owner_name FROM customers c JOIN employees p ON p.id = c.owner "
            f"WHERE {condition} ORDER BY c.name", *values,
        )  # fmt: skip
        return listed(rows, page, _CUSTOMER, "No customer matches all these words.")

    @tool
    def crm_customer(self, customer_id: Short) -> str:
        """Show a customer with its contacts and deals.

        Args:
            customer_id: the id, such as C-205.
        """
        store = self.desk.store
        one = self.desk.find(
            "customers", customer_id, "Ids of customers look like C-205; find them with crm_customers."
        )
        contacts = store.rows("SELECT * FROM contacts WHERE customer = ? ORDER BY name", one["id"])
        deals = store.rows(f"{_DEALS} d.customer = ? ORDER BY d.id", one["id"])
        people = "\n".join(f"- {row['id']} {row['name']}, {row['title']}, {row['email']}" for row in contacts)
        lines = "\n".join("- " + _DEAL.format(**row) for row in deals)
        owner = self.desk.employee(one["owner"])
        return (
            f"{one['id']}: {one['name']}\nTier: {one['tier']}\nIndustry: {one['industry']}\nCity: {one['city']}\n"
            f"Account manager: {owner['name']} ({owner['id']}, {owner['email']})\nContacts:\n{people or '- none'}\n"
            f"Deals:\n{lines or '- none'}"
        )

    @tool
    def crm_deals(self, query: Short, stage: AnyStage = "any", page: Page = 1) -> str:
        """Find deals by words in their title (customer and subject) or the name or id of their account manager.

        Args:
            query: the words.
            stage: only deals of this stage; `open` for all but won and lost.
            page: the page, from 1; ten deals each.
        """
        condition, values = matching(filled(query, "query"), ("d.title", "p.name", "d.owner"))
        if stage == "open":
            condition += " AND d.stage NOT IN ('won', 'lost')"
        elif stage != "any":
            condition, values = f"{condition} AND d.stage = ?", [*values, stage]
        rows = self.desk.store.rows(f"{_DEALS} {condition} ORDER BY d.close_date, d.id", *values)
        return listed(rows, page, _DEAL, "No deal matches.")

    @tool
    def crm_deal(self, deal_id: Short) -> str:
        """Show a deal with its activities.

        Args:
            deal_id: the id, such as D-512.
        """
        deal = self._deal(deal_id)
        done = self.desk.store.rows("SELECT * FROM activities WHERE deal = ? ORDER BY date, id", deal["id"])
        customer = self.desk.store.get("customers", deal["customer"])
        assert customer is not None
        lines = "\n".join(f"- {row['date']} {row['kind']} by {row['employee']}: {row['note']}" for row in done)
        return (
            f"{_DEAL.format(**deal)}\nCustomer: {customer['name']} ({customer['id']}), tier {customer['tier']}\n"
            f"Activities:\n{lines or '- none'}"
        )

    @tool
    def crm_create_deal(
        self, customer_id: Short, subject: Short, amount: Annotated[int, Field(ge=1, le=10_000_000)], close_date: Short
    ) -> str:
        """Create a deal in the stage `lead`; the person you work for becomes its account manager.

        Args:
            customer_id: the customer, such as C-205.
            subject: what the deal is about.
            amount: the amount in euros.
            close_date: when it is expected to close, as YYYY-MM-DD.
        """
        self._may_edit()
        customer = self.desk.find("customers", customer_id, "Find customers with crm_customers.")
        deal = {
            "id": self.desk.store.new_id("deals"),
            "customer": customer["id"],
            "title": f"{customer['name']}: {filled(subject, 'subject')}",
            "stage": "lead",
            "amount": amount,
            "discount": 0,
            "owner": self.desk.id,
            "close_date": read_date(close_date, "close_date"),
        }
        self.desk.store.insert("deals", deal)
        self.desk.audit("create deal", deal["id"])
        return f"Created {deal['id']}."

    @tool
    def crm_set_stage(self, deal_id: Short, stage: Stage) -> str:
        """Set the stage of a deal.

        Args:
            deal_id: the id, such as D-512.
            stage: the new stage.
        """
        return self._change(deal_id, stage=stage)

    @tool
    def crm_set_terms(
        self,
        deal_id: Short,
        amount: Annotated[int, Field(ge=-1, le=10_000_000)] = -1,
        discount: Annotated[int, Field(ge=-1, le=100)] = -1,
        close_date: Short = "",
    ) -> str:
        """Change the amount, the discount or the date of a deal.

        Args:
            deal_id: the id, such as D-512.
            amount: the new amount in euros; -1 keeps it.
            discount: the new discount in percent; -1 keeps it.
            close_date: the new date, as YYYY-MM-DD; empty keeps it.
        """
        values: dict[str, int | str] = {}
        if amount >= 0:
            values["amount"] = amount
        if discount >= 0:
            values["discount"] = discount
        if close_date.strip():
            values["close_date"] = read_date(close_date, "close_date")
        return self._change(deal_id, **values)

    @tool
    def crm_assign_deal(self, deal_id: Short, owner: Short) -> str:
        """Give a deal to another account manager.

        Args:
            deal_id: the id, such as D-512.
            owner: the id or address of the new account manager.
        """
        return self._change(deal_id, owner=self.desk.employee(owner)["id"])

    @tool
    def crm_log_activity(self, deal_id: Short, kind: Literal["call", "mail", "meeting", "note"], note: Long) -> str:
        """Record what was done about a deal today.

        Args:
            deal_id: the id, such as D-512.
            kind: the kind of activity.
            note: what happened.
        """
        self._may_edit()
        deal = self._deal(deal_id)
        activity = {
            "id": self.desk.store.new_id("activities"), "deal": deal["id"], "employee": self.desk.id, "kind": kind,
            "date": self.desk.today.isoformat(), "note": filled(note, "note"),
        }  # fmt: skip
        self.desk.store.insert("activities", activity)
        self.desk.audit("log activity", activity["id"])
        return f"Recorded {activity['id']} for {deal['id']}."

    def _change(self, id: str, **values: int | str) -> str:
        self._may_edit()
        deal = self._deal(id)
        if not self.desk.works_in("Management") and deal["owner"] != self.desk.id:
            if not self.desk.manages(deal["owner"]):
                raise ToolError(
                    f"No access: {deal['id']} belongs to {deal['owner_name']}; the account manager changes it."
                )
        if not values:
            raise ToolError("Nothing to change: give an amount, a discount or a close_date.")
        self.desk.store.update("deals", deal["id"], **values)
        self.desk.audit("update deal", deal["id"])
        return f"{deal['id']} is updated: {', '.join(f'{name} {value}' for name, value in values.items())}."

    def _may_edit(self) -> None:
        if not self.desk.works_in("Sales", "Management"):
            raise ToolError("No access: deals are edited by Sales only.")

    def _deal(self, id: str) -> Row:
        found = self.desk.store.rows(f"{_DEALS} d.id = ?", id.strip())
        if not found:
            raise ToolError(f"There is no deal {id.strip()[:40]!r}. Ids look like D-512; find them with crm_deals.")
        return found[0]
