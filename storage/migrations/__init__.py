"""Alembic migrations of the catalogue, run by `storage.catalogue.upgrade` when a catalogue is opened."""
