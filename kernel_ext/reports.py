"""Reports, results and options, for annotations: ``from streamstate.reports import CaptureReport``.

Each class is documented with the method that returns or takes it. They are loaded on first use.
"""
# ruff: noqa: PLC0414 (a name imported as itself is public for type checkers)

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.lazy_names import lazy_names

if TYPE_CHECKING:
    from streamstate.launch.query_status import QueryStatus as QueryStatus
    from streamstate.launch.running import Running as Running
    from streamstate.operations.availability.handover import HandoverReport as HandoverReport
    from streamstate.operations.availability.standby import Standby as Standby
    from streamstate.operations.availability.standby import StandbyStatus as StandbyStatus
    from streamstate.operations.capture_metrics import CaptureMetrics as CaptureMetrics
    from streamstate.operations.checkup.report import DoctorReport as DoctorReport
    from streamstate.operations.checkup.report import StoreState as StoreState
    from streamstate.operations.checkup.state_tables import TableReading as TableReading
    from streamstate.operations.code_check import CheckReport as CheckReport
    from streamstate.operations.drill import AvailabilityReport as AvailabilityReport
    from streamstate.operations.drill import DrillReport as DrillReport
    from streamstate.operations.fork import Fork as Fork
    from streamstate.operations.many_checkpoints import Checkpoints as Checkpoints
    from streamstate.operations.new_checkpoint.proposed_mapping import Proposal as Proposal
    from streamstate.operations.new_checkpoint.proposed_mapping import ProposedMapping as ProposedMapping
    from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint as WrittenCheckpoint
    from streamstate.operations.policies.dry_run import DryRun as DryRun
    from streamstate.operations.promotion import Promotion as Promotion
    from streamstate.operations.rescaling.advice import RescaleAdvice as RescaleAdvice
    from streamstate.operations.rescaling.rescale import RescaleReport as RescaleReport
    from streamstate.operations.supervision.restart_policy import BackOff as BackOff
    from streamstate.operations.supervision.supervise import Supervised as Supervised
    from streamstate.replay.audit import Audit as Audit
    from streamstate.replay.audit.report import AuditedReplay as AuditedReplay
    from streamstate.replay.debugging.session import DebugSession as DebugSession
    from streamstate.replay.forks.edits import Edit as Edit
    from streamstate.replay.replay import Replay as Replay
    from streamstate.replay.stepping.step_report import EpochRun as EpochRun
    from streamstate.replay.stepping.step_report import StepReport as StepReport
    from streamstate.sharing.agreed_terms import AgreedTerms as AgreedTerms
    from streamstate.sharing.contract import Contract as Contract
    from streamstate.sharing.contract_list import ContractList as ContractList
    from streamstate.sharing.following import Freshness as Freshness
    from streamstate.sharing.shared_frame import SharedFrame as SharedFrame
    from streamstate.sharing.shared_store import SharedStore as SharedStore
    from streamstate.snapshots.capture.epoch_commit import CaptureReport as CaptureReport
    from streamstate.snapshots.capture.fleet import Fleet as Fleet
    from streamstate.snapshots.capture.fleet import FleetReport as FleetReport
    from streamstate.snapshots.capture.follow import Capture as Capture
    from streamstate.snapshots.capture.follow import CaptureLag as CaptureLag
    from streamstate.snapshots.capture.follow import CaptureStatus as CaptureStatus
    from streamstate.snapshots.capture.recording.record import RecordedFrame as RecordedFrame
    from streamstate.snapshots.capture.recording.recorder import Recorder as Recorder
    from streamstate.snapshots.spark.session import StreamStateWarning as StreamStateWarning
    from streamstate.snapshots.store.export import ExportReport as ExportReport
    from streamstate.snapshots.store.retention.dropping import RetentionReport as RetentionReport
    from streamstate.snapshots.store.retention.tidying import CompactedTable as CompactedTable
    from streamstate.state_inspect.advice import Advice as Advice
    from streamstate.state_inspect.analytics.growth import StaleKeys as StaleKeys
    from streamstate.state_inspect.branches.comparison import BranchDivergence as BranchDivergence
    from streamstate.state_inspect.branches.comparison import Comparison as Comparison
    from streamstate.state_inspect.conditions.watch import Watch as Watch
    from streamstate.state_inspect.conditions.watch import WatchEvent as WatchEvent
    from streamstate.state_inspect.cuts.cut import Cut as Cut
    from streamstate.state_inspect.differences.diff import Diff as Diff
    from streamstate.state_inspect.differences.diff import DiffSummary as DiffSummary
    from streamstate.state_inspect.history import History as History
    from streamstate.state_inspect.inputs.late import Late as Late
    from streamstate.state_inspect.inputs.why import Why as Why
    from streamstate.state_inspect.load.forecast import Forecast as Forecast
    from streamstate.state_inspect.load.load import Load as Load
    from streamstate.state_inspect.snapshot import Snapshot as Snapshot
    from streamstate.state_inspect.sql.result import Result as Result
    from streamstate.state_inspect.state_table import StateTable as StateTable
    from streamstate.state_inspect.store import Store as Store
    from streamstate.state_inspect.suspects.suspect import Suspect as Suspect
    from streamstate.state_inspect.temporal_index.background_loading import Tail as Tail
    from streamstate.variables.notifications import Subscription as Subscription
    from streamstate.variables.shared_variable import SharedVariable as SharedVariable

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
