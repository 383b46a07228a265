"""The kinds of entries, and what is said of each."""

from __future__ import annotations


class Kind:
    """The kinds of entries, and what is the key of each: no two entries of one kind share it."""

    CREATED = "created"  # the first entry; the ledger's id
    REGISTERED = "registered"  # a dataset, with its budget as the amount; the commitment to the records
    CHARGED = "charged"  # the digest of the request
    STORED = "stored"  # the result of a charge; that of its charge
    BURNT = "burnt"  # a charge whose run failed; that of its charge
    TOPPED = "topped"  # a result that the charge after it replaces, once; that of the charge it belongs to
    RESERVED = "reserved"  # an amount held for a request that awaits approval; the digest of the request
    APPROVED = "approved"  # that of its reservation
    REFUSED = "refused"  # the same
    WITHDRAWN = "withdrawn"  # the same
    EXPIRED = "expired"  # the same
    VOTED = "voted"  # one approver's word on a reservation; that of the reservation and who votes
    CLOSED = "closed"  # a dataset answers nothing more; its name
    BUDGET = "budget"  # a lower budget, as the amount; name and number
    RULES = "rules"  # what a dataset allows from now on; name and number
    REBOUND = "rebound"  # commitments that a dataset of an older format lacked; its name
    ADOPTED = "adopted"  # somebody vouches for a ledger without an anchor; the hash of the head before it
    LOST = "lost"  # a charge that a restored backup had forgotten; the hash of the entry that was lost
    RECONCILED = "reconciled"  # the hash of the anchor's head
    NOTED = "noted"  # of accounts, roles and keys of a service; what, and a number


COSTLY = (Kind.REGISTERED, Kind.CHARGED, Kind.LOST, Kind.RESERVED, Kind.BUDGET)  # entries with an amount
WHOLE = (Kind.CREATED, Kind.ADOPTED, Kind.RECONCILED, Kind.NOTED)  # entries of the ledger as a whole
DEBITS = (Kind.REGISTERED, Kind.CHARGED, Kind.LOST)
DOUBTED = (Kind.ADOPTED, Kind.RECONCILED)  # after these nobody knows which results were topped up elsewhere
ENDED = (Kind.REFUSED, Kind.WITHDRAWN, Kind.EXPIRED)
# the life of a reserved request, each step once
LIFE = (Kind.RESERVED, Kind.APPROVED, *ENDED, Kind.CHARGED, Kind.STORED, Kind.BURNT)
KINDS = frozenset(value for name, value in vars(Kind).items() if not name.startswith("_"))


class FaultError(Exception):
    """An entry that breaks the rules."""
