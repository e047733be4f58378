"""`verify_dag`: a DAG to read committed batches again and compare the results with the stored rows (R24)."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from txbatch.core.errors import InvalidArgument
from txbatch.core.text import how_many
from txbatch.launch.job_file import check_emission, load_job
from txbatch.orchestration import result
from txbatch.orchestration.airflow import open_steps
from txbatch.orchestration.dag import BESIDE, RETRIES, root_of
from txbatch.orchestration.failing.for_airflow import failing_as_airflow
from txbatch.orchestration.failing.outages import outages_waited_for
from txbatch.orchestration.operators import EmitBatchOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.core.corrections.verify import Finding
    from txbatch.launch.job_file import Job

log = logging.getLogger(__name__)
XCOM_KEY = "findings"
_DOC = """**{topology}**, defined in `{job}`, is verified: {which} read again and compared with the stored numbers. Nothing
is changed.

The task fails for batches that are LATE, DIFFERENT, UNVERIFIABLE or not counted at all. The log and the XCom `findings`
name these batches. `txbatch verify {topology}` does the same from a shell.
"""


def verify_dag(
    job: str,
    *,
    sample: int | None = None,
    schedule: Any = None,
    emit_batch: dict[str, Any] | None = None,
    default_args: dict[str, Any] | None = None,
    **dag_arguments: Any,
) -> DAG:
    """Return the DAG `<topology>.verify`. Its one task verifies the committed batches of a job file: all, or a `sample`
    of so many.

    `job` is relative to the parent of the DAGs folder. Each run takes another sample, each of its tries the same sample.
    `emit_batch` holds further arguments of SparkSubmitOperator, like in `topology_dag`; `dag_arguments` are arguments of
    DAG.

    Raise DefinitionError, shown by Airflow as an import error of the DAG file.
    """
    if sample is not None and sample < 1:
        raise InvalidArgument(f"verify_dag: sample={sample} is no number of batches; leave it out to verify all")
    loaded = load_job(job, root_of(job, Path(sys._getframe(1).f_globals["__file__"])))
    which = "all batches are" if sample is None else f"{sample} batches, chosen by chance, are"
    arguments = {**BESIDE, **dag_arguments}
    arguments.setdefault("doc_md", _DOC.format(topology=loaded.topology.name, job=loaded.name, which=which))
    arguments.setdefault(
        "description", f"Read batches of {loaded.topology.name} again, and compare with the stored numbers"
    )
    name = f"{loaded.topology.name}.verify"
    with DAG(name, schedule=schedule, default_args={**RETRIES, **(default_args or {})}, **arguments) as dag:
        VerifyOperator(task_id="verify", job=loaded, sample=sample, **(emit_batch or {}))
    return dag


class VerifyOperator(EmitBatchOperator):
    """Verifies a job's batches in one Spark application. A bad finding fails the task at once: no retry would help."""

    def __init__(self, *, job: Job, sample: int | None = None, **kwargs: Any) -> None:
        super().__init__(job=job, **kwargs)
        self.sample = sample

    def execute(self, context: Context, event: Any = None, deadlines: dict[str, str] | None = None) -> Any:
        """Verify, note the result, and return the number of findings by outcome."""
        name = self.job.topology.name
        with (
            failing_as_airflow(context, topology=name, job=self.job.name),
            outages_waited_for(name, context, event, deadlines or {}),
        ):
            check_emission(self.job)
            found = self._verified(str(context["dag_run"].run_id))
        line, wrong = summary(found), [each for each in found if not each.ok]
        result.tell(context, line)
        context["ti"].xcom_push(key=XCOM_KEY, value=[_told(each) for each in wrong])
        log.info("%s: %s", self.job.topology.name, line)
        if wrong:
            raise AirflowFailException(f"{self.job.topology.name}: {line}; see `txbatch verify`")
        return _counted(found)

    def _verified(self, run_id: str) -> list[Finding]:
        from txbatch.run.verify import Asked
        from txbatch.wiring import open_verifier

        verifier = open_verifier(open_steps(self.job), self._application())
        found = []
        for each in verifier.verify(Asked(sample=self.sample, seed=crc32(run_id.encode()))):
            found.append(each)
            if not each.ok:
                log.error("%s", " ".join(filter(None, _told(each).values())))
        return found


def summary(found: Sequence[Finding]) -> str:
    """Return the findings in a line: `verified txids: 5; 6 EQUAL; 60 keys compared`, if the sixth is a state."""
    told = ", ".join(f"{number} {outcome}" for outcome, number in _counted(found).items())
    batches = sum(each.what == "batch" for each in found)
    wrong = ", ".join(each.name for each in found if not each.ok)
    again = ", ".join(each.name for each in found if each.restate)
    named = f" ({wrong})" if wrong else ""
    differs = f"; the source differs since, and a restate counts it as it is now: {again}" if again else ""
    return f"verified txids: {batches}; {told or 'nothing is committed yet'}{named}{_keys_told(found)}{differs}"


def _keys_told(found: Sequence[Finding]) -> str:
    """Return how many keys were compared, of batches and of states, and how many differ."""
    compared = [of for each in found for of in each.compared if of.why_not is None]
    if not compared:
        return ""
    different = sum(each.different for each in compared)
    differ = f", {different:,} {'differs' if different == 1 else 'differ'}" if different else ""
    return f"; {how_many(sum(each.keys for each in compared), 'key')} compared{differ}"


def _counted(found: Sequence[Finding]) -> dict[str, int]:
    return dict(Counter(each.outcome_told for each in found))


def _told(finding: Finding) -> dict[str, str]:
    """Return a finding for XCom and the log."""
    keys = [", ".join(each.key.values()) for compared in finding.compared for each in compared.examples]
    told = {"what": finding.name, "outcome": finding.outcome_told, "reason": finding.reason or ""}
    return told | {"keys": "; ".join(keys), "restate": finding.restate or ""}
