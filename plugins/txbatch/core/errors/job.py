"""Errors in a job as written (TX1..)."""

from txbatch.core.errors.base import DefinitionError, TransientError


class InvalidName(DefinitionError, code="TX101"):
    """A name cannot be used: wrong characters, empty, too long, or not UTF-8."""


class NameTaken(DefinitionError, code="TX102"):
    """A name is given twice, is reserved, or belongs to something else."""


class UnknownField(DefinitionError, code="TX103"):
    """An operation names a field, a value, a stream or a parameter that does not exist there."""


class WrongType(DefinitionError, code="TX104"):
    """An operation cannot work with the type of a field."""


class InvalidArgument(DefinitionError, code="TX105"):
    """An argument has a value that the operation does not take."""


class MissingPart(DefinitionError, code="TX106"):
    """The job leaves out a part that the operation needs."""


class OutOfPlace(DefinitionError, code="TX107"):
    """An operation stands in the wrong place, or cannot be combined with another operation."""


class InvalidWindow(DefinitionError, code="TX108"):
    """A window, a session or a watermark is wrong as written."""


class NotExactlyOnce(DefinitionError, code="TX109"):
    """This spout and this state do not give exactly-once together (R11)."""


class InvalidFunction(DefinitionError, code="TX110"):
    """A function cannot be called as the operation would call the function."""


class InvalidExpression(DefinitionError, code="TX111"):
    """Spark cannot compute an SQL expression, or the expression does not work record by record."""


class CannotTravel(DefinitionError, code="TX112"):
    """A function or a value of the job cannot be sent to Spark's executors."""


class NeedsSpark(DefinitionError, code="TX113"):
    """An operation needs Spark where no Spark runs."""


class JobNotFound(DefinitionError, code="TX114"):
    """The job file is missing, or is no job."""


class JobNotLoaded(DefinitionError, code="TX115"):
    """The job file raises an error, or ends the program, when it is loaded."""


class JobDiffers(DefinitionError, code="TX116"):
    """Spark loaded another job than the task, because Spark lacks an environment variable of the task."""


class JobLoadsDifferently(TransientError, code="TX117"):
    """Spark loaded another job than the task, without a reason that txbatch can name."""


class InvalidSchedule(DefinitionError, code="TX118"):
    """A schedule, a time zone or an interval cannot cut time into batches."""


class InvalidPlan(DefinitionError, code="TX119"):
    """A spout of the job planned a batch that cannot be stored or read."""


class BrokenCombiner(DefinitionError, code="TX120"):
    """The functions of an aggregator do not make the same value of all batches as of all records at once."""
