"""What can go wrong, by name. A message names the thing, the rule and the way out, and never holds a private value."""

from __future__ import annotations


class AbcdpError(Exception):
    """The base of every error that this library raises on purpose."""


class ModelError(AbcdpError, ValueError):
    """A prior or a simulator breaks the contract of :class:`abcdp.Model`."""


class UnitError(AbcdpError, ValueError):
    """A unit of privacy is malformed, or a distance cannot support it."""


class DistanceError(AbcdpError, ValueError):
    """A distance has impossible settings, or data do not fit it."""


class BankError(AbcdpError, ValueError):
    """A bank of simulations is missing, damaged, foreign or refused."""


class StorageError(AbcdpError, ValueError):
    """A place for banks or data cannot be opened, or fails again and again."""


class WorkerError(AbcdpError, RuntimeError):
    """Workers were lost more often than a run bears; what was finished is kept."""


class MechanismError(AbcdpError, ValueError):
    """A mechanism has impossible settings."""


class LawError(AbcdpError, ValueError):
    """A law of noise has an impossible shape or scale."""


class NoiseError(AbcdpError, ValueError):
    """A scale, a size or a seed that no sampler can serve."""


class NoiseMissingError(AbcdpError, ImportError):
    """The library behind a sampler is not installed."""


class DataError(AbcdpError, ValueError):
    """Records cannot be loaded or have the wrong form; the message holds none of them."""


class ReleaseError(AbcdpError, ValueError):
    """A release is malformed, or does not belong to the bank at hand."""


class SignatureError(AbcdpError, ValueError):
    """A file is not what its signature is for, or is somebody else's, or what is said to belong to it does not."""


class SignaturesMissingError(AbcdpError, ImportError):
    """The library behind signatures is not installed."""


class EvidenceError(AbcdpError, ValueError):
    """Evidence cannot be written or read as asked."""


class AuditError(AbcdpError, ValueError):
    """An audit cannot be carried out as asked."""


class PlanError(AbcdpError, ValueError):
    """A plan, or a check of one, cannot be made as asked, or a file is not a plan."""


class ServerError(AbcdpError, RuntimeError):
    """An owner's server refused a call, in its own words, or cannot be reached.

    `status` is that of HTTP, 0 where there was no answer; `code` names the kind of refusal, and `request_id` the call
    in the server's log.
    """

    def __init__(self, message: str, *, status: int = 0, code: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.request_id = status, code, request_id


class ClientMissingError(AbcdpError, ImportError):
    """The library behind :class:`abcdp.Client` is not installed."""


class DataWarning(UserWarning):
    """What is known of records leaves a doubt about what their numbers mean, or whom a guarantee for them protects."""


class SimulationWarning(UserWarning):
    """Simulations failed, or cannot be made as was asked for, and what that means."""


class UnitWarning(UserWarning):
    """A unit may not protect whom its owner means, and what would."""


class PosteriorWarning(UserWarning):
    """A posterior is rougher than asked for, and why."""
