"""Every error playhead raises, on one page.

A class has a stable ``code`` (for machines), ``retryable`` (whether the same call may succeed later with nothing
changed by the caller) and a docstring that is its default message. ``details`` hold plain JSON values that say more.
HTTP status codes live in the gateway alone.
"""

from __future__ import annotations

from typing import ClassVar


class PlayheadError(Exception):
    """playhead could not do what was asked."""

    code: ClassVar[str] = "playhead_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, **details: object) -> None:
        self.message = message or " ".join((type(self).__doc__ or "").split())
        self.details = details
        super().__init__(self.message)


class NotFound(PlayheadError):
    """There is no such thing here, or it is not yours to see."""

    code = "not_found"


class UnknownAgent(PlayheadError):
    """No agent of this name is registered."""

    code = "unknown_agent"


class InvalidInput(PlayheadError):
    """The agent does not accept this input."""

    code = "invalid_input"


class InvalidRequest(PlayheadError):
    """The request is not of the form that this call takes."""

    code = "invalid_request"


class KeyConflict(PlayheadError):
    """This idempotency key was used before with another body."""

    code = "key_conflict"


class AlreadyDecided(PlayheadError):
    """Another decision was recorded first; it is the one that counts."""

    code = "already_decided"


class ApprovalExpired(PlayheadError):
    """The deadline for this decision has passed."""

    code = "approval_expired"


class ApprovalCancelled(PlayheadError):
    """The run was cancelled, so the question is closed."""

    code = "approval_cancelled"


class RunInterrupted(PlayheadError):
    """The run was interrupted and cannot go on, so no decision can reach it."""

    code = "run_interrupted"


class RunFinal(PlayheadError):
    """The run has ended; nothing can be added to it."""

    code = "run_final"


class RunNotFree(PlayheadError):
    """Another attempt owns this run, or it is not waiting to be started."""

    code = "run_not_free"
    retryable = True


class AttemptLost(PlayheadError):
    """This attempt no longer owns its run; whatever it writes is refused and it must stop."""

    code = "attempt_lost"


class RunCancelled(PlayheadError):
    """The run was asked to stop."""

    code = "run_cancelled"


class NotInServerProcess(PlayheadError):
    """With the embedded store, attempts run in the server's own process; this process has no running server."""

    code = "not_in_server_process"


class InvalidEventType(PlayheadError):
    """An event type is snake_case, at most 64 characters, and not one of the reserved names."""

    code = "invalid_event_type"


class InvalidState(PlayheadError):
    """A snapshot field has a value that it cannot hold."""

    code = "invalid_state"


class InvalidPart(PlayheadError):
    """A text part has a name that is not allowed, is closed, or is one too many."""

    code = "invalid_part"


class PayloadNotJson(PlayheadError):
    """The value has no faithful JSON form."""

    code = "payload_not_json"


class PayloadTooLarge(PlayheadError):
    """The value is larger than its bound."""

    code = "payload_too_large"


class BadJson(PlayheadError):
    """The bytes are not strict JSON."""

    code = "bad_json"


class StoreUnavailable(PlayheadError):
    """The store cannot be reached or cannot write now."""

    code = "store_unavailable"
    retryable = True


class StoreFull(StoreUnavailable):
    """The disk is full: nothing was written, reading goes on."""

    code = "store_full"


class StoreCorrupt(PlayheadError):
    """The database file is damaged; it is left as it is."""

    code = "store_corrupt"


class StoreTooNew(PlayheadError):
    """The data was written by a newer version of playhead."""

    code = "store_too_new"


class StoreTooOld(PlayheadError):
    """The database lacks steps of its schema; `playhead db upgrade` applies them."""

    code = "store_too_old"


class DataLocked(PlayheadError):
    """Another server is using this data folder."""

    code = "data_locked"


class FolderUnusable(PlayheadError):
    """The data folder cannot be created or written."""

    code = "folder_unusable"


class PortInUse(PlayheadError):
    """The address is in use by another program."""

    code = "port_in_use"


class NoServer(PlayheadError):
    """No server is running on this data folder."""

    code = "no_server"
    retryable = True


class Unauthenticated(PlayheadError):
    """The request does not say who is asking, in a way that can be trusted."""

    code = "unauthenticated"


class Forbidden(PlayheadError):
    """This request is refused."""

    code = "forbidden"


class TooManyStreams(PlayheadError):
    """There are too many open streams; come back a little later."""

    code = "too_many_streams"
    retryable = True


class NotReady(PlayheadError):
    """The server is starting or shutting down; come back a little later."""

    code = "not_ready"
    retryable = True
