"""Errors, by what to do next: nothing helps, try again, or ask the ledger."""

from txbatch.core.text import one_line

# The way on where the plan of a batch names a file that is another by now.
ABORT = "abort the batch (`txbatch abort TOPOLOGY TXID --why ...`) and run again: the next plan takes it as it is"
# And for a record that a state refuses, which no quarantine takes.
REFUSED = (
    "filter such records out in the job, or let a function raise for them and quarantine them "
    f"(docs/topology.md#records-that-fail), or mend the source, then {ABORT}"
)


class TxbatchError(Exception):
    """Root of every error that txbatch raises on purpose. Its text names the thing, the reason and the next step.

    It is one printable line of bounded length, whatever names and records are in it: it goes to terminals, logs, the ledger
    and the UI.
    """

    def __init__(self, text: object = "") -> None:
        super().__init__(one_line(text))


class TerminalError(TxbatchError):
    """No retry helps: something must be changed first."""


class TransientError(TxbatchError):
    """Try again: the same txid, with the same metadata."""


class OutcomeUnknown(TxbatchError):
    """The answer to COMMIT was lost (R10). Try again: the ledger knows whether it happened."""


class DefinitionError(TerminalError):
    """A topology, a job file or a setting is wrong as written."""


class NotExactlyOnce(DefinitionError):
    """This spout and this state do not give exactly-once together (R11)."""


class UnknownName(TerminalError):
    """No topology, state or batch of that name is known."""


class NotMigrated(TerminalError):
    """The database lacks the schema of this version."""


class SchemaMismatch(TerminalError):
    """What is stored has another shape than what is now defined."""


class NewerFormat(TerminalError):
    """A newer txbatch stored this, in a format that this one does not know."""


class StaleAttempt(TerminalError):
    """A newer attempt of the same txid exists: this one may change nothing (R5)."""


class Incomplete(TerminalError):
    """What was staged is not what was planned, or not what the manifest says (R7)."""


class HalfCommitted(TerminalError):
    """A transactional state apart has the batch's rows, which it cannot give back: it can only be committed (R21)."""


class TakenBack(Incomplete):
    """What the newest attempt wrote to a state apart was taken back meanwhile: it is emitted again (R21)."""


class RecordsGone(TerminalError):
    """The source no longer keeps records that were to come next: somebody must decide, nothing skips them silently."""


class BadRecord(TerminalError):
    """A record cannot be counted: invalid UTF-8, U+0000 or null in a key, a value out of range."""


class BadFunction(BadRecord):
    """A function of a state or an aggregate failed for a record; the text has no value of one that is not to be shown."""


class QuarantineFull(TerminalError):
    """Functions failed for more records of a batch than its topology's quarantine takes, or for some that it cannot take."""


class NotFoldable(TerminalError):
    """A state's past cannot be folded: the ledger does not know how its partials merge (R22)."""


class StateAhead(TerminalError):
    """A state row carries this txid or a later one: it was changed outside the ledger (R9)."""


class IntervalTaken(TerminalError):
    """Part of the interval belongs to another batch (R2)."""


class IntervalNotOver(TransientError):
    """The interval ends in the future: its records are not all there (R2)."""


class BrokenChain(TerminalError):
    """The batch does not continue what is committed; its run plans a new one (R6)."""


class LeaseHeld(TransientError):
    """Another live run holds this batch (R5)."""


class NotItsTurn(TransientError):
    """A lower txid is not final yet (R6)."""


class ChangeTooEarly(TransientError):
    """Batches that need what was before are open, or have still to come: the change is made once they are final (R23)."""


class PartitionUnreadable(TransientError):
    """A partition cannot be read now (R12, R13): how a reader declares an outage."""


class Unavailable(TransientError):
    """The database or the storage does not answer."""
