"""What outlives a run: the ledger, the write-once measurements, the identity of a release."""
