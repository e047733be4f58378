"""Errors of definitions, history and rebuilds (TX6..), and of the past, questions and retention (TX7..)."""

from txbatch.core.errors.base import DefinitionError, TerminalError, TransientError


class SchemaMismatch(TerminalError, code="TX601"):
    """The stored definition, table or state differs from the definition of the job."""


class ChangeTooEarly(TransientError, code="TX602"):
    """An open batch or a recent rebuild needs the former definition (R23)."""


class CannotRestate(TerminalError, code="TX603"):
    """This batch cannot be counted again."""


class CannotRebuild(TerminalError, code="TX604"):
    """This topology cannot be rebuilt."""


class RebuildStopped(TerminalError, code="TX605"):
    """A rebuild cannot go on: the rebuild has ended, or the job has changed."""


class ReadersBehind(ChangeTooEarly, code="TX606"):
    """Another topology has not read the current generation of a state yet."""


class ReadByOthers(TerminalError, code="TX607"):
    """Another topology, or a view or function that txbatch did not make, reads the state: the state must stay as the state is."""


class WhyMissing(DefinitionError, code="TX608"):
    """A correction needs a reason."""


class NewerFormat(TerminalError, code="TX609"):
    """A newer txbatch stored a format that this txbatch cannot read."""


class Unverifiable(TerminalError, code="TX610"):
    """A batch cannot be compared with its source. `restates`: a restate may count the batch as the source is now."""

    def __init__(self, text: object = "", *, restates: bool = True) -> None:
        super().__init__(text)
        self.restates = restates


class PastNotKept(TerminalError, code="TX701"):
    """The state has no past as of that txid or time."""


class InvalidKey(TerminalError, code="TX702"):
    """A question does not have the form of the state's key."""


class CannotAsk(TerminalError, code="TX703"):
    """The state cannot answer this kind of question."""


class NotFoldable(TerminalError, code="TX704"):
    """A state's past cannot be folded: gc lacks the rule by which partials merge (R22)."""


class WindowsGone(TerminalError, code="TX705"):
    """A batch may count in windows that retention has removed."""


class RetentionWaits(TransientError, code="TX706"):
    """Retention waits until a rebuild has ended."""


class InvalidRetention(DefinitionError, code="TX707"):
    """A retention policy is wrong as written, or does not fit the topology."""


class SnapshotTooOld(TransientError, code="TX708"):
    """The transaction of a question began before a rebuild was swapped: ask in a new transaction (R19)."""


class PastStillOpen(TransientError, code="TX709"):
    """A batch at or below the txid that is asked is open, and could change the answer (R19)."""
