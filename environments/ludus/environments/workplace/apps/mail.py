"""Mail: the mailbox of the person the agent works for."""

from __future__ import annotations

import re
from typing import Final, Literal

from ludus.environments._arguments import filled
from ludus.environments.workplace.apps.desk import Addresses, App, Long, Page, Short, listed, matching
from ludus.environments.workplace.world.store import Row
from ludus.server import ToolError, tool

FolderName = Literal["inbox", "sent", "archive", "trash"]
_LINE: Final = "{id} | {sent} | from {sender} | to {recipients} | {subject}"
_ADDRESS: Final = re.compile(r"[a-z0-9._+-]{1,60}@[a-z0-9.-]{1,60}")
_HINT: Final = "Ids of mails look like M-1042; find them with mail_list or mail_search."


class MailApp(App):
    """Read, send and file mails."""

    @tool
    def mail_list(self, folder: FolderName, page: Page = 1) -> str:
        """List the mails of a folder, latest first.

        Args:
            folder: the folder.
            page: the page, from 1; ten mails each.
        """
        return listed(self._mails(folder, "1", []), page, _LINE, f"There are no mails in {folder}.")

    @tool
    def mail_search(self, query: Short, page: Page = 1) -> str:
        """Find mails in all folders by words in sender, recipients, subject or body, latest first.

        Args:
            query: words that the mail must contain, such as a name or a part of the subject.
            page: the page, from 1; ten mails each.
        """
        condition, values = matching(filled(query, "query"), ("sender", "recipients", "subject", "body"))
        return listed(self._mails("", condition, values), page, _LINE, "No mail contains all these words.")

    @tool
    def mail_read(self, mail_id: Short) -> str:
        """Read a mail.

        Args:
            mail_id: the id, such as M-1042.
        """
        mail = self._mail(mail_id)
        copies = f"\nCc: {mail['cc']}" if mail["cc"] else ""
        return (
            f"{mail['id']} in {mail['folder']}\nFrom: {mail['sender']}\nTo: {mail['recipients']}{copies}\nSent: "
            f"{mail['sent']}\nSubject: {mail['subject']}\n\n{mail['body']}"
        )

    @tool
    def mail_send(self, to: Addresses, subject: Short, body: Long) -> str:
        """Send a new mail.

        Args:
            to: the addresses of the recipients.
            subject: the subject.
            body: the text.
        """
        return self._send(to, filled(subject, "subject"), body)

    @tool
    def mail_reply(self, mail_id: Short, body: Long) -> str:
        """Reply to the sender of a mail.

        Args:
            mail_id: the mail to reply to, such as M-1042.
            body: the text.
        """
        mail = self._mail(mail_id)
        subject = mail["subject"] if mail["subject"].startswith("Re: ") else f"Re: {mail['subject']}"
        return self._send([mail["sender"]], subject, body, reply_to=mail["id"])

    @tool
    def mail_forward(self, mail_id: Short, to: Addresses, note: Long = "") -> str:
        """Forward a mail with its text.

        Args:
            mail_id: the mail to forward, such as M-1042.
            to: the addresses of the recipients.
            note: a text before the forwarded one; it may be empty.
        """
        mail = self._mail(mail_id)
        body = f"{note}\n\n--- Forwarded from {mail['sender']} ---\n{mail['body']}"
        return self._send(to, f"Fwd: {mail['subject']}", body, forward_of=mail["id"])

    @tool
    def mail_move(self, mail_id: Short, folder: FolderName) -> str:
        """Move a mail to another folder.

        Args:
            mail_id: the id, such as M-1042.
            folder: where to move it; `trash` deletes it.
        """
        mail = self._mail(mail_id)
        if (mail["folder"] == "sent") != (folder == "sent"):
            raise ToolError("Sent mails stay in `sent`, and other mails cannot move there.")
        self.desk.store.update("mailboxes", f"{mail['id']}/{self.desk.id}", folder=folder)
        self.desk.audit("move mail", mail["id"])
        return f"{mail['id']} is now in {folder}."

    def _mails(self, folder: str, condition: str, values: list[str]) -> list[Row]:
        where = "AND b.folder = ?" if folder else ""
        return self.desk.store.rows(
            f"SELECT m.*, b.folder FROM mailboxes b JOIN mails m ON m.id = b.mail WHERE b.employee = ? {where} AND "
            f"({condition}) ORDER BY m.sent DESC, CAST(SUBSTR(m.id, 3) AS INTEGER) DESC",
            self.desk.id, *([folder] if folder else []), *values,
        )  # fmt: skip

    def _mail(self, id: str) -> Row:
        found = self._mails("", "m.id = ?", [id.strip()])
        if not found:
            raise ToolError(f"There is no mail {id.strip()[:40]!r} in this mailbox. {_HINT}")
        return found[0]

    def _send(self, to: list[str], subject: str, body: str, *, reply_to: str = "", forward_of: str = "") -> str:
        desk = self.desk
        filled(body, "body")
        addresses = sorted({one.strip().lower() for one in to})
        for one in addresses:
            if not _ADDRESS.fullmatch(one):
                raise ToolError(
                    f"{one[:40]!r} is not a mail address; find addresses with people_search or contacts_search."
                )
        inside = {}
        for one in addresses:
            if one.endswith(f"@{desk.domain}"):
                inside[one] = desk.store.rows("SELECT id FROM employees WHERE email = ?", one)
                if not inside[one]:
                    raise ToolError(f"No colleague has the address {one!r}; find addresses with people_search.")
        mail = {
            "id": desk.store.new_id("mails"), "sender": desk.me["email"], "recipients": ", ".join(addresses), "cc": "",
            "subject": subject, "body": body, "sent": f"{desk.today.isoformat()} 09:00", "reply_to": reply_to,
            "forward_of": forward_of,
        }  # fmt: skip
        desk.store.insert("mails", mail)
        boxes = {desk.id: "sent"}
        for rows in inside.values():
            boxes.setdefault(rows[0]["id"], "inbox")
        for employee, folder in boxes.items():
            row = {"id": f"{mail['id']}/{employee}", "mail": mail["id"], "employee": employee, "folder": folder}
            desk.store.insert("mailboxes", row)
        desk.audit("send mail", mail["id"])
        return f"Sent as {mail['id']} to {mail['recipients']}."
