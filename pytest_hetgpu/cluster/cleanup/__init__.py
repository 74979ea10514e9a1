"""Cleanup of resources that outlive a run: their owners, the ledger of their locations, and the watchdog."""
