"""Transports between ranks: one file per family; variants are YAML."""
