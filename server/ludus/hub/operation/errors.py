"""The errors of backups, as a branch of the tree in `ludus.protocol.errors`.

AuthoringError
├── BackupFailed      there is nothing to back up, or nowhere to put it
├── BackupRefused     a file that is no backup, is cut or was changed, or is of a newer hub
└── RestoreRefused    the place to restore to is not empty
"""

from __future__ import annotations

from ludus.protocol.errors import AuthoringError


class BackupFailed(AuthoringError):
    """There is nothing to back up, or nowhere to put it."""


class BackupRefused(AuthoringError):
    """A file that is no backup, is cut or was changed, or is of a newer hub. Nothing was restored."""


class RestoreRefused(AuthoringError):
    """The place to restore to is not empty. Nothing was changed."""
