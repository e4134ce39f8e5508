"""HR: leave, expenses and salaries."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Final, Literal

from pydantic import Field

from ludus.environments._arguments import filled, read_date
from ludus.environments.workplace.apps.desk import App, Page, Short, listed
from ludus.environments.workplace.world.store import Row
from ludus.server import ToolError, tool

Category = Literal["travel", "hotel", "meals", "equipment", "training", "software"]
Decision = Literal["approved", "rejected"]
Statuses = Literal["any", "pending", "approved", "rejected", "withdrawn"]
_LEAVE: Final = "{id} | {name} ({employee}) | {kind} | {first_day} to {last_day} | {days} days | {status}"
_EXPENSE: Final = (
    "{id} | {name} ({employee}) | {date} | {amount} EUR | {category} | {description} | receipt {receipt} | {status}"
)


class HrApp(App):
    """Ask for leave and expenses, decide on those of your reports, and read personnel data where you may."""

    @tool
    def hr_balance(self, employee: Short) -> str:
        """Show how many days of leave a person has left: your own, those of your direct reports, or all for HR.

        Args:
            employee: the id or address.
        """
        one = self.desk.employee(employee)
        self._may_see(one["id"])
        balance = self.desk.store.get("leave_balances", one["id"])
        assert balance is not None
        return f"{one['name']} ({one['id']}) has {balance['days_left']} days of leave left this year."

    @tool
    def hr_salary(self, employee: Short) -> str:
        """Show a salary. Only HR may read salaries.

        Args:
            employee: the id or address.
        """
        one = self.desk.employee(employee)
        if not self.desk.works_in("HR"):
            raise ToolError("No access: only HR may read salaries.")
        salary = self.desk.store.get("salaries", one["id"])
        assert salary is not None
        return f"{one['name']} ({one['id']}) earns {salary['yearly']} EUR a year, band {salary['band']}."

    @tool
    def hr_leaves(self, employee: Short, status: Statuses = "any", page: Page = 1) -> str:
        """List requests for leave, in the order of time.

        Args:
            employee: an id or address, or `reports` for all your direct reports.
            status: only requests with this status.
            page: the page, from 1; ten requests each.
        """
        rows = self._of("leaves", employee, status, "first_day")
        return listed(rows, page, _LEAVE, "There are no such requests for leave.")

    @tool
    def hr_request_leave(
        self, first_day: Short, last_day: Short, kind: Literal["vacation", "sick", "parental", "unpaid"]
    ) -> str:
        """Ask for leave for the person you work for; the manager decides.

        Args:
            first_day: the first day, as YYYY-MM-DD.
            last_day: the last day, as YYYY-MM-DD.
            kind: the kind of leave.
        """
        first, last = read_date(first_day, "first_day"), read_date(last_day, "last_day")
        if last < first:
            raise ToolError("last_day must not be before first_day.")
        days = (date.fromisoformat(last) - date.fromisoformat(first)).days + 1
        if days > 366:
            raise ToolError("Leave takes at most 366 days.")
        start = date.fromisoformat(first)
        workdays = sum((start + timedelta(days=n)).weekday() < 5 for n in range(days))
        leave: Row = {
            "id": self.desk.store.new_id("leaves"), "employee": self.desk.id, "kind": kind, "first_day": first,
            "last_day": last, "days": workdays, "status": "pending", "note": "",
        }  # fmt: skip
        self.desk.store.insert("leaves", leave)
        self.desk.audit("request leave", leave["id"])
        return f"Created {leave['id']}: {workdays} workdays, pending."

    @tool
    def hr_decide_leave(self, leave_id: Short, decision: Decision) -> str:
        """Decide on a pending request for leave of a direct report; HR decides for everyone else.

        Args:
            leave_id: the id, such as L-230.
            decision: the decision.
        """
        leave = self._pending("leaves", leave_id, "Ids look like L-230; find them with hr_leaves.")
        self._may_decide(leave["employee"])
        self.desk.store.update("leaves", leave["id"], status=decision)
        self.desk.audit("decide leave", leave["id"])
        return f"{leave['id']} is {decision}."

    @tool
    def hr_withdraw_leave(self, leave_id: Short) -> str:
        """Withdraw a request for leave of the person you work for.

        Args:
            leave_id: the id, such as L-230.
        """
        leave = self.desk.find("leaves", leave_id, "Ids look like L-230; find them with hr_leaves.")
        if leave["employee"] != self.desk.id:
            raise ToolError("No access: only the person who asked for it may withdraw leave.")
        self.desk.store.update("leaves", leave["id"], status="withdrawn")
        self.desk.audit("withdraw leave", leave["id"])
        return f"{leave['id']} is withdrawn."

    @tool
    def hr_expenses(self, employee: Short, status: Statuses = "any", page: Page = 1) -> str:
        """List claims of expenses, in the order of time.

        Args:
            employee: an id or address, or `reports` for all your direct reports.
            status: only claims with this status.
            page: the page, from 1; ten claims each.
        """
        rows = self._of("expenses", employee, status, "date")
        return listed(rows, page, _EXPENSE, "There are no such claims.")

    @tool
    def hr_claim_expense(
        self,
        day: Short,
        amount: Annotated[int, Field(ge=1, le=100_000)],
        category: Category,
        description: Short,
        receipt: Literal["yes", "no"],
    ) -> str:
        """Claim an expense for the person you work for; the manager decides.

        Args:
            day: when it was paid, as YYYY-MM-DD.
            amount: the amount in whole euros.
            category: the category.
            description: what it was for.
            receipt: whether there is a receipt.
        """
        expense: Row = {
            "id": self.desk.store.new_id("expenses"), "employee": self.desk.id, "date": read_date(day, "day"),
            "amount": amount, "category": category, "description": filled(description, "description"),
            "receipt": receipt, "status": "pending",
        }  # fmt: skip
        self.desk.store.insert("expenses", expense)
        self.desk.audit("claim expense", expense["id"])
        return f"Created {expense['id']}, pending."

    @tool
    def hr_decide_expense(self, expense_id: Short, decision: Decision) -> str:
        """Decide on a pending claim of a direct report; Finance decides for everyone else.

        Args:
            expense_id: the id, such as X-240.
            decision: the decision.
        """
        expense = self._pending("expenses", expense_id, "Ids look like X-240; find them with hr_expenses.")
        self._may_decide(expense["employee"], "Finance")
        self.desk.store.update("expenses", expense["id"], status=decision)
        self.desk.audit("decide expense", expense["id"])
        return f"{expense['id']} is {decision}."

    def _of(self, table: str, employee: str, status: str, order: str) -> list[Row]:
        store = self.desk.store
        if employee.strip().lower() == "reports":
            people = [row["id"] for row in store.rows("SELECT id FROM employees WHERE manager = ?", self.desk.id)]
            if not people:
                raise ToolError(f"{self.desk.me['name']} has no direct reports.")
        else:
            people = [self.desk.employee(employee)["id"]]
            self._may_see(people[0], *(["Finance"] if table == "expenses" else []))
        marks = ", ".join("?" * len(people))
        where, values = ("", []) if status == "any" else ("AND t.status = ?", [status])
        return store.rows(
            f"SELECT t.*, p.name FROM {table} t JOIN employees p ON p.id = t.employee WHERE t.employee IN ({marks}) "
            f"{where} ORDER BY t.{order}, t.id", *people, *values,
        )  # fmt: skip

    def _pending(self, table: str, id: str, hint: str) -> Row:
        row = self.desk.find(table, id, hint)
        if row["status"] != "pending":
            raise ToolError(f"{row['id']} is already {row['status']}.")
        return row

    def _may_see(self, employee: str, *others: str) -> None:
        if employee != self.desk.id and not self.desk.works_in("HR", *others) and not self.desk.manages(employee):
            raise ToolError("No access: only the person, the direct manager and HR may see this.")

    def _may_decide(self, employee: str, department: str = "HR") -> None:
        if employee == self.desk.id:
            raise ToolError("No access: you cannot decide on your own request.")
        if not self.desk.manages(employee) and not self.desk.works_in(department):
            raise ToolError(f"No access: only the direct manager and {department} decide on this.")
