"""Files: folders of documents with rights of departments."""

from __future__ import annotations

from typing import Final, Literal

from ludus.environments._arguments import filled
from ludus.environments.workplace.apps.desk import App, Long, Page, Short, listed, matching
from ludus.environments.workplace.world.store import Row
from ludus.server import ToolError, tool

_LINE: Final = (
    "{id} | {folder} | {title} | version {version} | {status} | access {access} | retain_until {retain_until}"
)


class FilesApp(App):
    """Find, write, share and file documents."""

    @tool
    def files_list(self, folder: Short, page: Page = 1) -> str:
        """List the documents of a folder; `/` lists the folders.

        Args:
            folder: the folder, such as /shared.
            page: the page, from 1; ten documents each.
        """
        if folder.strip() == "/":
            folders = self.desk.store.rows("SELECT * FROM folders ORDER BY id")
            return listed(folders, page, "{id} | readers: {readers} | writers: {writers}", "There are no folders.")
        found = self._folder(folder, "readers")
        rows = self.desk.store.rows("SELECT * FROM documents WHERE folder = ? ORDER BY title, version", found["id"])
        return listed(rows, page, _LINE, f"{found['id']} is empty.")

    @tool
    def files_search(self, query: Short, page: Page = 1) -> str:
        """Find documents that you may read by words in their title, folder or text.

        Args:
            query: the words.
            page: the page, from 1; ten documents each.
        """
        condition, values = matching(filled(query, "query"), ("title", "body", "folder"))
        rows = self.desk.store.rows(f"SELECT * FROM documents WHERE {condition} ORDER BY title, version", *values)
        return listed(
            [row for row in rows if self._readable(row)], page, _LINE, "No document that you may read matches."
        )

    @tool
    def files_read(self, document_id: Short) -> str:
        """Read a document.

        Args:
            document_id: the id, such as F-421.
        """
        one = self._document(document_id)
        owner = self.desk.employee(one["owner"])
        return f"{_LINE.format(**one)}\nOwner: {owner['name']} ({owner['id']}, {owner['email']})\n\n{one['body']}"

    @tool
    def files_create(self, folder: Short, title: Short, body: Long) -> str:
        """Write a new document with access `internal`.

        Args:
            folder: the folder, such as /shared.
            title: the title.
            body: the text.
        """
        found = self._folder(folder, "writers")
        document = {
            "id": self.desk.store.new_id("documents"),
            "folder": found["id"],
            "title": filled(title, "title"),
            "version": 1,
            "status": "current",
            "access": "internal",
            "owner": self.desk.id,
            "retain_until": self.desk.today.isoformat(),
            "body": filled(body, "body"),
        }
        self.desk.store.insert("documents", document)
        self.desk.audit("create document", document["id"])
        return f"Created {document['id']}."

    @tool
    def files_move(self, document_id: Short, folder: Short) -> str:
        """Move a document to another folder; you need the right to write in both.

        Args:
            document_id: the id, such as F-421.
            folder: the new folder, such as /archive.
        """
        document = self._writable(document_id)
        found = self._folder(folder, "writers")
        self.desk.store.update("documents", document["id"], folder=found["id"])
        self.desk.audit("move document", document["id"])
        return f"{document['id']} is now in {found['id']}."

    @tool
    def files_set_status(self, document_id: Short, status: Literal["current", "outdated", "draft"]) -> str:
        """Set the status of a document.

        Args:
            document_id: the id, such as F-421.
            status: the new status.
        """
        document = self._writable(document_id)
        self.desk.store.update("documents", document["id"], status=status)
        self.desk.audit("update document", document["id"])
        return f"{document['id']} is now {status}."

    @tool
    def files_delete(self, document_id: Short) -> str:
        """Delete a document for good.

        Args:
            document_id: the id, such as F-421.
        """
        document = self._writable(document_id)
        self.desk.store.delete("documents", document["id"])
        self.desk.audit("delete document", document["id"])
        return f"{document['id']} is deleted."

    @tool
    def files_share(self, document_id: Short, address: Short) -> str:
        """Give a person access to one document.

        Args:
            document_id: the id, such as F-421.
            address: the mail address of a colleague or of a person outside.
        """
        document = self._document(document_id)
        to = filled(address, "address").lower()
        if "@" not in to:
            raise ToolError(f"{to[:40]!r} is not a mail address; find addresses with people_search or contacts_search.")
        if to.endswith(f"@{self.desk.domain}"):
            self.desk.employee(to)
        key = f"{document['id']}/{to}"
        if self.desk.store.get("shares", key) is None:
            self.desk.store.insert("shares", {"id": key, "document": document["id"], "address": to})
            self.desk.audit("share document", key)
        return f"{to} can now read {document['id']}."

    def _folder(self, path: str, right: Literal["readers", "writers"]) -> Row:
        name = "/" + path.strip().strip("/").lower()
        found = self.desk.find("folders", name, "files_list with folder `/` lists them.")
        if not self._has(found, right):
            verb = "read" if right == "readers" else "write"
            raise ToolError(f"No access: only {found[right]} may {verb} in {name}.")
        return found

    def _has(self, folder: Row, right: str) -> bool:
        allowed = folder[right].split(", ")
        return "all" in allowed or self.desk.me["department"] in allowed

    def _readable(self, document: Row) -> bool:
        folder = self.desk.store.get("folders", document["folder"])
        shared = f"{document['id']}/{self.desk.me['email']}"
        return (folder is not None and self._has(folder, "readers")) or self.desk.store.get(
            "shares", shared
        ) is not None

    def _document(self, id: str) -> Row:
        document = self.desk.find("documents", id, "Ids of documents look like F-421; find them with files_search.")
        if not self._readable(document):
            raise ToolError(f"No access: you may not read {document['id']}.")
        return document

    def _writable(self, id: str) -> Row:
        document = self._document(id)
        self._folder(document["folder"], "writers")
        return document
