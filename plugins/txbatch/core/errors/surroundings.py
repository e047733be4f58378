"""Errors of databases, roles, Spark, Airflow and settings (TX8..), and of the command line (TX9..)."""

from txbatch.core.errors.base import DefinitionError, TerminalError, TransientError


class Unavailable(TransientError, code="TX801"):
    """The database or the storage does not answer."""


class StateInUse(Unavailable, code="TX802"):
    """Other sessions use a state or a batch that must be locked."""


class NotMigrated(TerminalError, code="TX803"):
    """The database lacks the schema of this version."""


class PermissionDenied(TerminalError, code="TX804"):
    """The role lacks a right in the database."""


class DatabaseRefused(TransientError, code="TX805"):
    """PostgreSQL rejected a statement."""


class InvalidSetting(DefinitionError, code="TX806"):
    """An environment variable or a connection of Airflow is missing or wrong."""


class UnsafeSparkSetting(DefinitionError, code="TX807"):
    """A setting of Spark can change numbers and cannot be pinned."""


class PackageMissing(TransientError, code="TX808"):
    """A package, or Java, is not installed."""


class PackageMisfit(TerminalError, code="TX809"):
    """The version of an installed package, or of Python, does not fit."""


class DiskFull(TransientError, code="TX810"):
    """A disk is full."""


class StagingUnreadable(TransientError, code="TX811"):
    """The staging area cannot be read or written."""


class UnsafeStaging(TerminalError, code="TX815"):
    """The staging area holds a symbolic link, which may lead out of the staging area."""


class LoginRefused(TerminalError, code="TX820"):
    """The server of a source rejects the login."""


class UnsafeSource(DefinitionError, code="TX821"):
    """The role of a source may write in the ledger's database."""


class UsageError(TerminalError, code="TX901"):
    """Options or arguments of a command do not go together, or a value is not valid."""


class JobEndedProgram(TerminalError, code="TX902"):
    """The job, or a function of the job, ended the program."""


class ProjectInTheWay(DefinitionError, code="TX903"):
    """A project cannot be created in this folder."""


class Unexpected(TerminalError, code="TX999"):
    """An error that txbatch does not expect."""
