"""The settings that a coordinator of transactions obeys, with Kafka's defaults; `core/config` fills them from the node's."""

from msgspec import Struct


class TransactionConfig(Struct, frozen=True):
    """Each field is the property of the same name, with dots; `version` is the finalized transaction.version."""

    transaction_max_timeout_ms: int = 900_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transactional_id_expiration_ms: int = 604_800_000
    request_timeout_ms: int = 30_000
    version: int = 2

    @property
    def log_value_version(self) -> int:
        """Of the records in __transaction_state."""
        return min(self.version, 1)
