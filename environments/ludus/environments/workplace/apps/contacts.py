"""Contacts: the colleagues of the company, and the people at its customers."""

from __future__ import annotations

import re
from typing import Final

from ludus.environments._arguments import filled
from ludus.environments.workplace.apps.desk import App, Page, Short, listed, matching
from ludus.environments.workplace.world.store import Row
from ludus.server import ToolError, tool

_PERSON: Final = "{id} | {name} | {title} | {department} | {email}"
_CONTACT: Final = "{id} | {name} | {title} | {company} | {email}"
_EDITORS: Final = ("Sales", "Support", "Marketing")


class ContactsApp(App):
    """Look people up, and keep the contacts at customers."""

    @tool
    def people_search(self, query: Short, page: Page = 1) -> str:
        """Find colleagues by words in their name, title, department or location.

        Args:
            query: words such as a name and a department.
            page: the page, from 1; ten people each.
        """
        condition, values = matching(filled(query, "query"), ("name", "title", "department", "location"))
        rows = self.desk.store.rows(f"SELECT * FROM employees WHERE {condition} ORDER BY name", *values)
        return listed(rows, page, _PERSON, "No colleague matches all these words.")

    @tool
    def people_read(self, employee: Short) -> str:
        """Show a colleague with manager, direct reports, phone and location.

        Args:
            employee: the id, such as P-104, or the address.
        """
        one = self.desk.employee(employee)
        manager = self.desk.store.get("employees", one["manager"])
        reports = self.desk.store.rows("SELECT * FROM employees WHERE manager = ? ORDER BY name", one["id"])
        above = f"{manager['name']} ({manager['id']}, {manager['email']})" if manager else "none"
        below = "; ".join(f"{row['name']} ({row['id']})" for row in reports) or "none"
        return (
            f"{one['id']}: {one['name']}\nTitle: {one['title']}\nDepartment: {one['department']}\nMail: "
            f"{one['email']}\nPhone: {one['phone']}\nLocation: {one['location']}\nSince: {one['started']}\nManager: "
            f"{above}\nDirect reports: {below}"
        )

    @tool
    def contacts_search(self, query: Short, page: Page = 1) -> str:
        """Find people at customers by words in their name, title, address or the customer's name.

        Args:
            query: words such as a name and a customer.
            page: the page, from 1; ten contacts each.
        """
        condition, values = matching(filled(query, "query"), ("k.name", "k.title", "k.email", "c.name"))
        rows = self.desk.store.rows(
            "SELECT k.*, c.name AS company FROM contacts k JOIN customers c ON c.id = k.customer "
            f"WHERE {condition} ORDER BY k.name, k.id", *values,
        )  # fmt: skip
        return listed(rows, page, _CONTACT, "No contact matches all these words.")

    @tool
    def contacts_read(self, contact_id: Short) -> str:
        """Show a contact with phone and customer.

        Args:
            contact_id: the id, such as K-215.
        """
        one = self._contact(contact_id)
        customer = self.desk.store.get("customers", one["customer"])
        assert customer is not None
        return (
            f"{one['id']}: {one['name']}\nTitle: {one['title']}\nCustomer: {customer['name']} ({customer['id']})\n"
            f"Mail: {one['email']}\nPhone: {one['phone']}"
        )

    @tool
    def contacts_create(self, name: Short, customer_id: Short, title: Short, email: Short, phone: Short) -> str:
        """Add a person at a customer.

        Args:
            name: first and last name.
            customer_id: the customer, such as C-205.
            title: the job title.
            email: the address.
            phone: the phone number.
        """
        self._may_edit()
        customer = self.desk.find("customers", customer_id, "Find customers with crm_customers.")
        contact = {
            "id": self.desk.store.new_id("contacts"), "name": filled(name, "name"), "customer": customer["id"],
            "title": title.strip(), "email": _address(email), "phone": phone.strip(),
        }  # fmt: skip
        self.desk.store.insert("contacts", contact)
        self.desk.audit("create contact", contact["id"])
        return f"Created {contact['id']}."

    @tool
    def contacts_update(self, contact_id: Short, title: Short = "", email: Short = "", phone: Short = "") -> str:
        """Change the data of a contact. Texts left empty stay as they are.

        Args:
            contact_id: the id, such as K-215.
            title: the new job title.
            email: the new address.
            phone: the new phone number.
        """
        self._may_edit()
        contact = self._contact(contact_id)
        new = {"title": title.strip(), "email": _address(email) if email.strip() else "", "phone": phone.strip()}
        values = {name: value for name, value in new.items() if value}
        if not values:
            raise ToolError("Nothing to change: give a title, an email or a phone.")
        self.desk.store.update("contacts", contact["id"], **values)
        self.desk.audit("update contact", contact["id"])
        return f"{contact['id']} is updated: {', '.join(values)}."

    @tool
    def contacts_delete(self, contact_id: Short) -> str:
        """Delete a contact.

        Args:
            contact_id: the id, such as K-215.
        """
        self._may_edit()
        contact = self._contact(contact_id)
        self.desk.store.delete("contacts", contact["id"])
        self.desk.audit("delete contact", contact["id"])
        return f"{contact['id']} ({contact['name']}) is deleted."

    def _may_edit(self) -> None:
        if not self.desk.works_in(*_EDITORS):
            raise ToolError(f"No access: contacts are edited by {', '.join(_EDITORS)} only.")

    def _contact(self, id: str) -> Row:
        return self.desk.find("contacts", id, "Ids of contacts look like K-215; find them with contacts_search.")


def _address(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._+-]{1,60}@[A-Za-z0-9.-]{1,60}", text.strip()):
        raise ToolError(f"{text.strip()[:40]!r} is not a mail address.")
    return text.strip().lower()
